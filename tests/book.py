#!/usr/bin/env python3
"""book.py ROOT BINARIES: compares the book (docs/, README.md, CONTRIBUTING.md) with the code.

Every ```cpp block carries a marker in the line before it:

  <!-- from sharding/plan/mesh.h -->   A quotation. Its lines stand in that file, one after another. A
                                       line "// ..." stands for lines left out. Indentation may differ.
  <!-- program first_tensor -->        A whole program: examples/first_tensor.cpp without the comment at
                                       its top. The program runs and exits with status 0.
  <!-- diff a.cpp b.cpp -->            Above a ```diff block: what differs from a.cpp to b.cpp, without
                                       the comments at their tops. "book.py --write ROOT" writes it.
  <!-- sketch -->                      Not in the tree. Nothing checks it, so the text calls it a sketch.

Other marks:

  <!-- printed by footprints -->       The text from here to <!-- end --> is the output of the program,
                                       or of several, separated by commas; indented or not.

Links lead to files and headings that exist. Paths in backticks exist, unless they contain NAME. A name quoted after the word
"test" is the name of a test case. The figures in FIGURES equal the output of their scripts.

Prints one line per finding and exits with status 1 if there is one.
"""
import difflib
import re
import subprocess
import sys
import textwrap
from pathlib import Path

# Figure: the program whose output is piped into the script that draws it.
FIGURES = {"docs/figures/partitions.svg": ("partitions", "docs/figures/partitions.py")}
PAGES = ["README.md", "CONTRIBUTING.md", "docs/**/*.md"]

FENCE = re.compile(r"^([^\n]*)\n```(\w*)\n(.*?)^```$", re.S | re.M)
MARKER = re.compile(r"<!-- (?:from (\S+)|program (\S+)|diff (\S+ \S+)|(sketch)) -->$")
DIFF = re.compile(r"^(<!-- diff (\S+ \S+) -->)\n```diff\n.*?^```$", re.S | re.M)
PRINTED = re.compile(r"<!-- printed by (\S+(?:, \S+)*) -->\n(.*?)<!-- end -->", re.S)
ANY_MARKER = re.compile(r"<!-- (?:from|program|diff|sketch|printed by)\b")
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
TEST_NAME = re.compile(r'\btests? "([^"]+)"')
CODE_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/|[\w.-]+(?:/[\w.-]+)+\.(?:h|cpp|cu|cuh|py|sh|md|yaml|svg|cmake))`")
TEST_CASE = re.compile(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')


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


def without_first_comment(source):
    return re.sub(r"\A(?://.*\n)+\n*", "", source)


def diff_of(before, after):
    """The lines that differ, with two around them. Hunks are separated by a line of dots."""
    lines = [without_first_comment(text).strip().splitlines() for text in (before, after)]
    hunks = list(difflib.unified_diff(*lines, n=2, lineterm=""))[2:]
    return "".join("...\n" if line.startswith("@@") else line + "\n" for line in hunks)


def printed(text):
    """A program's output, which may stand in a block. Hashes of 16 digits count as equal: their bits
    depend on the processor."""
    without_hashes = re.sub(r"\b[0-9a-f]{16}\b", "HASH", text)
    return textwrap.dedent(re.sub(r"^```\w*$", "", without_hashes, flags=re.M)).strip()


def test_names(source):
    """The names of a test file's cases; a name may be cut into several literals."""
    for literals in TEST_CASE.findall(source):
        yield "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors_of(text):
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", without_code, re.M)}


class Tree:
    """The source tree and its programs, as the checks see them."""

    def __init__(self, root, binaries):
        self.root, self.binaries = root, binaries
        self.cases = None

    def read(self, path):
        file = self.root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def exists(self, path):
        return (self.root / path).exists()

    def output_of(self, program):
        """What a program prints, or None if it fails or does not exist."""
        if not (self.binaries / program).is_file():
            return None
        run = subprocess.run([self.binaries / program], capture_output=True, text=True, check=False)
        return run.stdout if run.returncode == 0 else None

    def has_test(self, name):
        if self.cases is None:
            files = (self.root / "tests").rglob("*_test.cpp")
            self.cases = {case for file in files for case in test_names(file.read_text("utf-8"))}
        return name in self.cases


def findings_in_fences(text, tree):
    used = 0
    for before, language, body in FENCE.findall(text):
        marker = MARKER.search(before)
        first = body.strip().splitlines()[0] if body.strip() else ""
        if marker is None:
            if language == "cpp":
                yield f"a C++ block has no marker (from, program or sketch): {first}"
            continue
        used += 1
        path, program, files, _ = marker.groups()
        if path:
            source = tree.read(path)
            if source is None:
                yield f"there is no {path}"
            elif not is_quoted_from(body, source):
                yield f"not in {path}: {first} ..."
        if program:
            source = tree.read(f"examples/{program}.cpp")
            if source is None:
                yield f"there is no examples/{program}.cpp"
            elif stripped(body) != stripped(without_first_comment(source)):
                yield f"examples/{program}.cpp differs from the block"
            elif tree.output_of(program) is None:
                yield f"the program {program} fails"
        if files:
            sources = [tree.read(file) for file in files.split()]
            if None in sources:
                yield f"there is no {' or no '.join(files.split())}"
            elif body != diff_of(*sources):
                yield f"the diff of {files} is another; run tests/book.py --write"
    for programs, shown in PRINTED.findall(text):
        used += 1
        outputs = [tree.output_of(program) for program in programs.split(", ")]
        if None in outputs:
            yield f"the program {programs} fails"
        elif printed(shown) != printed("".join(outputs)):
            yield f"{programs} prints something else"
    if used != len(ANY_MARKER.findall(text)):
        yield "a marker has no block or no <!-- end --> after it"


def resolved(page, target):
    """The path of a link's target from the root."""
    parts = list(Path(page).parent.parts)
    for part in Path(target).parts:
        if part == "..":
            if not parts:
                return ".."
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


def findings_in_references(text, page, tree):
    """Checks links, headings, paths and names of tests."""
    for target in LINK.findall(text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = resolved(page, path) if path else page
        if not tree.exists(path):
            yield f"a link leads nowhere: {target}"
        elif anchor and anchor not in anchors_of(tree.read(path) or ""):
            yield f"there is no heading for the link {target}"
    for path in CODE_PATH.findall(text):
        folder = path.split("/")[0]
        if re.search(r"\bNAME", path):
            continue  # a placeholder
        if tree.exists(folder) and not tree.exists(path):
            yield f"there is no {path}"
    for name in TEST_NAME.findall(re.sub(r"\s+", " ", text)):
        if not tree.has_test(name):
            yield f"there is no test \"{name}\""


def findings_in(text, page, tree):
    """The findings in one page, whose path from the root is `page`."""
    yield from findings_in_fences(text, tree)
    yield from findings_in_references(text, page, tree)


def with_diffs(text, tree):
    """The page with its diffs made again."""
    def block(match):
        sources = [tree.read(file) for file in match[2].split()]
        return f"{match[1]}\n```diff\n{diff_of(*sources)}```"
    return DIFF.sub(block, text)


def pages_of(tree):
    return sorted(path for pattern in PAGES for path in tree.root.glob(pattern))


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--write":
        tree = Tree(Path(arguments[1]), None)
        for page in pages_of(tree):
            page.write_text(with_diffs(page.read_text(encoding="utf-8"), tree), encoding="utf-8")
        return 0
    if len(arguments) != 2:
        sys.exit("usage: book.py ROOT BINARIES, or book.py --write ROOT")
    tree = Tree(*map(Path, arguments))
    findings = []
    for page in pages_of(tree):
        name = str(page.relative_to(tree.root))
        text = page.read_text(encoding="utf-8")
        findings += [f"{name}: {finding}" for finding in findings_in(text, name, tree)]
    for figure, (program, script) in FIGURES.items():
        drawn = subprocess.run([sys.executable, tree.root / script], input=tree.output_of(program) or "",
                               capture_output=True, text=True, check=False).stdout
        if drawn != tree.read(figure):
            findings.append(f"{figure}: {program} | {script} draws something else")
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"book: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
