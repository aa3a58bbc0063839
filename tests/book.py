#!/usr/bin/env python3
"""book.py ROOT BINARIES: what the book in ROOT/docs shows of the code is what the code says and prints.

  <!-- from sharding/strategy/exchange.h -->     The next fenced block is a quotation: its lines stand in that file,
                                        one after another. A line "// ..." stands for lines left out.
                                        Indentation may differ.
  <!-- printed by footprints -->        From here to <!-- end --> stands what the program prints.

The figures in FIGURES are what their programs draw. Prints one line per finding and exits 1 if there is
any.
"""
import re
import subprocess
import sys
from pathlib import Path

# Figure: the program whose output is piped into the script that draws it.
FIGURES = {"docs/figures/partitions.svg": ("partitions", "docs/figures/partitions.py")}

QUOTE = re.compile(r"<!-- from (\S+) -->\n```\w*\n(.*?)^```", re.S | re.M)
PRINTED = re.compile(r"<!-- printed by (\S+) -->\n(.*?)<!-- end -->", re.S)
MARKER = re.compile(r"<!-- (?:from|printed by) ")


def stripped(text):
    return [line.strip() for line in text.strip().splitlines()]


def pieces(lines):
    """The runs of lines between the lines that stand for an omission."""
    run = []
    for line in lines:
        if line == "// ...":
            yield run
            run = []
        else:
            run.append(line)
    yield run


def is_quoted_from(quote, source):
    """Whether the quotation's pieces stand in the source, in order."""
    lines, position = stripped(source), 0
    for piece in pieces(stripped(quote)):
        starts = [i for i in range(position, len(lines)) if lines[i:i + len(piece)] == piece]
        if not starts:
            return False
        position = starts[0] + len(piece)
    return True


def findings_in(text, read, output_of):
    """What is wrong in a chapter. `read` gives a source file or None, `output_of` what one prints."""
    quotes, printed = QUOTE.findall(text), PRINTED.findall(text)
    if len(quotes) + len(printed) != len(MARKER.findall(text)):
        yield "a marker is not followed by a fenced block, or by <!-- end -->"
    for path, quote in quotes:
        source = read(path)
        if source is None:
            yield f"there is no {path}"
        elif not is_quoted_from(quote, source):
            yield f"{path} does not say (any more): {quote.strip().splitlines()[0]} ..."
    for program, shown in printed:
        if shown.strip() != output_of(program).strip():
            yield f"{program} prints something else than is shown"


def main(arguments):
    if len(arguments) != 2:
        sys.exit("usage: book.py ROOT BINARIES")
    root, binaries = map(Path, arguments)

    def read(path):
        return (root / path).read_text(encoding="utf-8") if (root / path).is_file() else None

    def run(command, given=None):
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout

    findings = []
    for chapter in sorted((root / "docs").glob("*.md")):
        text = chapter.read_text(encoding="utf-8")
        findings += [f"{chapter.relative_to(root)}: {finding}"
                     for finding in findings_in(text, read, lambda name: run([binaries / name]))]
    for figure, (program, script) in FIGURES.items():
        if run([sys.executable, root / script], given=run([binaries / program])) != read(figure):
            findings.append(f"{figure}: {program} | {script} draws something else")
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"book: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
