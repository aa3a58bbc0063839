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

book_fences.py has the rules for blocks without a marker.

Other marks:

  <!-- printed by footprints -->       The text from here to <!-- end --> is the output of the program,
                                       or of several, separated by commas; indented or not. Arguments
                                       may follow a program's name.
  <!-- lines of tessera plan X.yaml --> The lines from here to <!-- end --> stand in the output of the
                                       program, in this order. A line "..." stands for lines left out.
                                       A script is named by its path, such as tools/lab.py. The word
                                       SCRATCH is a folder for files that one command writes and
                                       another one reads.
  <!-- counted by count_ladder --op X --> The text from here to <!-- end --> is the output of the
                                       program, which only builds with the emulated GPU have. There
                                       "book.py --counted ROOT BINARIES" checks these marks and TRACES.

An exercise's solution (<details>) has one of these marks or an equation of numbers such as
"6 x 793,856 = 4,763,136", which is computed again; or the mark <!-- in words -->.

Links lead to files and headings that exist. Paths in backticks exist, unless they contain NAME, and so do
keys such as `sharding.strategy`. A name quoted after the word "test" is the name of a test case. The
figures in FIGURES equal the output of their scripts; "book.py --draw ROOT BINARIES" draws them. book_words.py checks the
glossary's words, book_notation.py the letters, book_exercises.py the parts of chapters, book_citations.py the
bibliography, book_readme.py the README,
book_track.py the length and the figures of track 1.

Prints one line per finding and exits with status 1 if there is one.
"""
import difflib
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import book_citations
import book_exercises
import book_fences
import book_notation
import book_readme
import book_track
import book_words

# Figures below docs/figures/: the command whose output is piped into the script of the same name, or None.
# Commas separate several commands. The output of each follows a line "# COMMAND". A name may have arguments of the
# script: "gauges ddp" is drawn by gauges.py to gauges_ddp.svg.
PLANNED = "tessera plan examples/llama3_8b.yaml --ranks 8 --machine h100"
PLANNED_MOE = f"{PLANNED} model.preset=qwen3-30b-a3b"
FIGURES = {
    "attention_hopper": None,  # from a trace in docs/figures/traces/
    "attention_tiles": None,
    "choose_flow": None,
    "clock": "trace_step ddp, trace_step fsdp",
    "collectives": "collectives",
    "context_parallel": None,
    "cost": None,
    "elastic": None,
    "experts": None,
    "fsdp2": None,  # from the traces in docs/figures/traces/
    "gauges ddp zero1 zero2 zero3": PLANNED,
    "gauges fsdp experts": f"{PLANNED_MOE}, {PLANNED_MOE} sharding.expert_parallel=8",
    "gauges fsdp hsdp": PLANNED,
    "gauges rung2": PLANNED,
    "gauges rung2 ddp": PLANNED,
    "gauges zero3 fsdp": PLANNED,
    "gpu_hierarchy": None,
    "hsdp_links": None,
    "matrix_rows": None,
    "memory_bars": "tessera plan examples/llama3_8b.yaml --ranks 8",
    "memory_over_time": "step_memory over_time",
    "mesh": "tessera plan examples/hsdp.yaml --ranks 8 data.train=none sharding.shard_size=4",
    "micro_batches": None,
    "moving_step": None,  # from a trace in docs/figures/traces/
    "offload": None,
    "one_unit_or_many": None,
    "panels": None,
    "partitions": "partitions",
    "pipeline_bubble": "pipeline gpipe, pipeline 1f1b, pipeline interleaved, pipeline zero_bubble",
    "prediction": None,  # from traces in docs/figures/traces/
    "ring": "ring",
    "ring_moves": None,
    "roofline": None,
    "rungs_map": None,
    "shared_tile": None,
    "slots": "trace_step fsdp",
    "stage_ring": None,
    "swizzle": None,
    "tensor_parallel": None,
    "timeline": None,  # from a trace in docs/figures/traces/
    "tokens_crossing": None,
    "tree": None,
    "unit_life": None,
    "warp_reads": None,
    "zero_grid": None,
}
# Files that figures are drawn from: the command that prints them, in a build with the emulated GPU.
TRACES = {"docs/figures/traces/attention_hopper.json": "trace_attention --json"}
PAGES = ["README.md", "CONTRIBUTING.md", "docs/**/*.md"]

FENCE = re.compile(r"^([^\n]*)\n```(\w*)\n(.*?)^```$", re.S | re.M)
MARKER = re.compile(r"<!-- (?:from (\S+)|program (\S+)|diff (\S+ \S+)|(sketch)) -->$")
DIFF = re.compile(r"^(<!-- diff (\S+ \S+) -->)\n```diff\n.*?^```$", re.S | re.M)
PRINTED = re.compile(r"<!-- printed by ([^>]+?) -->\n(.*?)<!-- end -->", re.S)
COUNTED = re.compile(r"<!-- counted by ([^>]+?) -->\n(.*?)<!-- end -->", re.S)
ANY_MARKER = re.compile(r"<!-- (?:from|program|diff|sketch|printed by|lines of|counted by)\b")
LINES_OF = re.compile(r"<!-- lines of ([^>]+?) -->\n(.*?)<!-- end -->", re.S)
KEY = re.compile(r"`((?:optimizer|sharding|runtime|kernels|moe)\.[a-z]\w*)(?:[:=][^`]*)?`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.S | re.M)
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
    """A program's output, which may stand in a block."""
    return textwrap.dedent(re.sub(r"^ *```\w*$", "", text, flags=re.M)).strip()


def are_lines_of(shown, output):
    """Whether the lines stand in the output, in order, whatever the spaces. Lines "..." say nothing."""
    def words(text):
        return [" ".join(line.split()) for line in printed(text).splitlines() if line.strip()]
    remaining = iter(words(output))
    wanted = [line for line in words(shown) if line != "..."]
    return bool(wanted) and all(line in remaining for line in wanted)


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
        self.outputs = {}  # by command
        self.scratch = tempfile.TemporaryDirectory()

    def read(self, path):
        file = self.root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def exists(self, path):
        return (self.root / path).exists()

    def output_of(self, command):
        """What a command prints, or None if it fails or does not exist. It is a program of the build or a
        script of the tree, and its arguments. It runs in the root."""
        if command not in self.outputs:
            name, *arguments = command.replace("SCRATCH", self.scratch.name).split()
            programs = [path for path in (self.binaries / name, self.root / name) if path.is_file()]
            self.outputs[command] = None
            if programs:
                run = subprocess.run([programs[0].resolve(), *arguments], cwd=self.root, capture_output=True,
                                     text=True, stdin=subprocess.DEVNULL, check=False)
                if run.returncode == 0:
                    self.outputs[command] = run.stdout.replace(self.scratch.name, "SCRATCH")
        return self.outputs[command]

    def has_test(self, name):
        if self.cases is None:
            files = (self.root / "tests").rglob("*_test.cpp")
            self.cases = {case for file in files for case in test_names(file.read_text("utf-8"))}
        return name in self.cases


def findings_in_fences(text, tree):
    used = 0
    for before, _, body in FENCE.findall(text):
        marker = MARKER.search(before)
        first = body.strip().splitlines()[0] if body.strip() else ""
        if marker is None:
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
    for command, shown in LINES_OF.findall(text):
        used += 1
        output = tree.output_of(command)
        if output is None:
            yield f"the program {command} fails"
        elif not are_lines_of(shown, output):
            yield f"{command} does not print these lines"
    used += len(COUNTED.findall(text))
    if used != len(ANY_MARKER.findall(text)):
        yield "a marker has no block or no <!-- end --> after it"


def findings_in_counts(text, tree):
    """Checks the text that programs of a build with the emulated GPU print."""
    for command, shown in COUNTED.findall(text):
        output = tree.output_of(command)
        if output is None:
            yield f"the program {command} fails"
        elif printed(shown) != printed(output):
            yield f"{command} prints something else"


def findings_in_traces(tree):
    """Checks the files that programs of a build with the emulated GPU print."""
    for path, command in TRACES.items():
        if tree.output_of(command) is None:
            yield f"{path}: the program {command} fails"
        elif tree.output_of(command) != tree.read(path):
            yield f"{path}: {command} prints something else"


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


def links_of(text):
    """The targets of the links in a page. Code may look like one: x[i](y)."""
    return LINK.findall(CODE.sub("code", text))


def findings_in_references(text, page, tree):
    """Checks links, headings, paths and names of tests."""
    for target in links_of(text):
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
    keys = tree.read("docs/configuration.md") or ""
    for key in KEY.findall(text):
        if f"`{key}`" not in keys and not tree.exists(key):
            yield f"there is no key {key}"
    for name in TEST_NAME.findall(re.sub(r"\s+", " ", text)):
        if not tree.has_test(name):
            yield f"there is no test \"{name}\""


def findings_in(text, page, tree):
    """The findings in one page, whose path from the root is `page`."""
    yield from findings_in_fences(text, tree)
    yield from book_fences.findings_in_blocks(text, tree)
    yield from findings_in_references(text, page, tree)
    yield from book_exercises.findings_in_solutions(text)


def with_diffs(text, tree):
    """The page with its diffs made again."""
    def block(match):
        sources = [tree.read(file) for file in match[2].split()]
        return f"{match[1]}\n```diff\n{diff_of(*sources)}```"
    return DIFF.sub(block, text)


def path_of(figure):
    return f"docs/figures/{figure.replace(' ', '_')}.svg"


def drawn(figure, tree):
    """The text of a figure, made again."""
    commands = (FIGURES[figure] or "").split(", ")
    outputs = [tree.output_of(command) or "" if command else "" for command in commands]
    if len(commands) > 1:
        outputs = [f"# {command}\n{output}" for command, output in zip(commands, outputs)]
    # -S: the scripts need no installed package, and to look for those takes longer than a figure.
    script, *arguments = figure.split()
    return subprocess.run([sys.executable, "-S", tree.root / f"docs/figures/{script}.py", *arguments], input="".join(outputs),
                          capture_output=True, text=True, check=False).stdout


def pages_of(tree):
    return sorted(path for pattern in PAGES for path in tree.root.glob(pattern))


def report(findings):
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"book: {len(findings)} findings")
    return 1 if findings else 0


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--write":
        tree = Tree(Path(arguments[1]), None)
        for page in pages_of(tree):
            page.write_text(with_diffs(page.read_text(encoding="utf-8"), tree), encoding="utf-8")
        return 0
    if len(arguments) == 3 and arguments[0] == "--draw":
        tree = Tree(Path(arguments[1]), Path(arguments[2]))
        for figure in FIGURES:
            (tree.root / path_of(figure)).write_text(drawn(figure, tree), encoding="utf-8")
        return 0
    if len(arguments) == 3 and arguments[0] == "--counted":
        tree = Tree(Path(arguments[1]), Path(arguments[2]))
        findings = [f"{page.relative_to(tree.root)}: {finding}" for page in pages_of(tree)
                    for finding in findings_in_counts(page.read_text(encoding="utf-8"), tree)]
        return report([*findings, *findings_in_traces(tree)])
    if len(arguments) != 2:
        sys.exit("usage: book.py [--draw | --counted] ROOT BINARIES, or book.py --write ROOT")
    tree = Tree(*map(Path, arguments))
    findings = []
    for page in pages_of(tree):
        name = str(page.relative_to(tree.root))
        text = page.read_text(encoding="utf-8")
        findings += [f"{name}: {finding}" for finding in findings_in(text, name, tree)]
    findings += book_words.findings_in_words(tree.read)
    findings += book_notation.findings_in_notation(tree.read)
    order = book_words.order_of(tree.read(book_words.CONTENTS) or "")
    findings += book_exercises.findings_in_chapters(tree.read, order)
    findings += book_readme.findings_in_readme(tree.read)
    findings += book_track.findings_in_track(tree.read)
    names = [str(page.relative_to(tree.root)) for page in pages_of(tree)]
    findings += book_citations.findings_in_citations(tree.read, names)
    for figure in FIGURES:
        if drawn(figure, tree) != tree.read(path_of(figure)):
            findings.append(f"{path_of(figure)}: its script draws something else; run tests/book.py --draw")
    return report(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
