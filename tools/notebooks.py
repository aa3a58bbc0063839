#!/usr/bin/env python3
"""notebooks.py check | write: the rungs in Python as notebooks, examples/ladder/python/notebooks/N_name.ipynb.

A notebook shows a rung in pieces, writes them to a file, and runs it on two and on four ranks. `write` makes and runs
them, and keeps what they print; it needs PyTorch, gloo, nbclient and ipykernel. `check` needs none of these: it compares the
cells with the rungs, and a hash that tells which sources printed the output.
"""
import argparse
import hashlib
import json
import pathlib
import re
import signal
import sys

PYTHON = pathlib.Path(__file__).resolve().parents[1] / "examples/ladder/python"
NOTEBOOKS = PYTHON / "notebooks"
CHAPTERS = {"1_single": "ladder", "2_ddp": "data_parallel", "3_ddp_overlapped": "data_parallel", "4_zero1": "zero",
            "5_zero2": "zero", "6_zero3": "zero", "7_fsdp": "fsdp", "8_hsdp": "hsdp", "9_expert_parallel": "expert_parallelism",
            "10_tensor": "tensor_parallelism", "11_context": "context_parallelism", "12_pipeline": "pipeline_parallelism"}
SETUP = """\
import os, pathlib, sys, tempfile

os.environ["PYTHONPATH"] = str(pathlib.Path.cwd().parent)  # ladder.py is there
os.chdir(tempfile.mkdtemp())  # for the file that the cells below write"""


def pieces_of(text):
    """A rung's text in pieces with headings: what a rank holds, a step, and the hooks."""
    lines = text.splitlines()
    methods = [number for number, line in enumerate(lines) if line.startswith("    def ")]
    prepare = next(number for number in methods if "def prepare(" in lines[number])
    behind = [number for number in methods if number > prepare] + [len(lines)]
    bounds = [("What a rank holds", 0, behind[0])]
    if "def step(" in lines[behind[0]]:
        bounds.append(("A step", behind[0], next(iter(behind[1:-1]), lines.index('if __name__ == "__main__":'))))
    bounds.append(("Hooks" if bounds[-1][2] in methods else "The program", bounds[-1][2], len(lines)))
    return [(title, "\n".join(lines[begin:end]).rstrip() + "\n") for title, begin, end in bounds]


def sources_of(rung):
    """The files that a rung's output depends on."""
    text = (PYTHON / f"{rung}.py").read_text(encoding="utf-8")
    return ["ladder", rung, *re.findall(r"^import (dense)$", text, re.M), *re.findall(r'import_module\("(\w+)"\)', text)]


def hash_of(rung):
    return hashlib.sha256(b"".join((PYTHON / f"{name}.py").read_bytes() for name in sources_of(rung))).hexdigest()


def cells_of(rung):
    """The cells without outputs: pairs of a kind and a text."""
    text = (PYTHON / f"{rung}.py").read_text(encoding="utf-8")
    title = re.match(r'"""(.*?)\n?(?:\n|""")', text)[1]
    cells = [("markdown", f"# {title}\n\nThe chapter is `docs/{CHAPTERS[rung]}.md`, and the same rung in C++ is "
                          f"`examples/ladder/{rung}.cpp`. `ladder.py` has the model, the batches and the collectives. "
                          "Run the cells from the top."),
             ("code", SETUP)]
    for number, (heading, piece) in enumerate(pieces_of(text)):
        separator = "" if number == 0 else "\n"
        cells += [("markdown", f"## {heading}"),
                  ("code", f"%%writefile {'-a ' if number else ''}{rung}.py\n{separator}{piece}".rstrip())]
    cells += [("markdown", "## Run it\n\nThe line has the first and the last loss, the bytes that all ranks send in a step, and those "
                           "that a rank holds between steps."),
              ("code", f"!{{sys.executable}} {rung}.py --ranks 2"),
              ("markdown", "Predict `sent` and `held` for four ranks. Then run the cell."),
              ("code", f"!{{sys.executable}} {rung}.py --ranks 4"),
              ("markdown", "Change a cell above, run all cells again, and explain the difference.")]
    return cells


def notebook_of(rung):
    """A notebook that has not run."""
    cells = []
    for number, (kind, text) in enumerate(cells_of(rung)):
        cell = {"cell_type": kind, "id": f"{rung}-{number}", "metadata": {}, "source": text}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    return {"cells": cells, "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                                         "tessera": {"sha256": hash_of(rung)}}, "nbformat": 4, "nbformat_minor": 5}


def executed(rung):
    """The notebook with its outputs."""
    try:
        import nbclient  # `check` does without it
        import nbformat
    except ModuleNotFoundError as error:
        sys.exit(f"notebooks.py: {error.name} is missing; first: pip install nbclient ipykernel")
    notebook = nbformat.from_dict(notebook_of(rung))
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}},
                            record_timing=False).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
    notebook.metadata.pop("language_info", None)
    return notebook


def printed(notebook):
    """The lines that the rung of a notebook printed."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    text = "".join("".join(output.get("text", "")) for output in outputs)
    return [line for line in text.splitlines() if " N = " in line]


def findings():
    """What is wrong with the notebooks that are kept: lines."""
    for rung in CHAPTERS:
        path = NOTEBOOKS / f"{rung}.ipynb"
        if not path.is_file():
            yield f"{path} is missing: tools/notebooks.py write"
            continue
        notebook = json.loads(path.read_text(encoding="utf-8"))
        kept = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
        if kept != cells_of(rung) or notebook["metadata"]["tessera"]["sha256"] != hash_of(rung):
            yield f"{path} belongs to other sources: tools/notebooks.py write"
        elif len(printed(notebook)) != 2:
            yield f"{path} has no output on two and on four ranks: tools/notebooks.py write"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "write"))
    parser.add_argument("rungs", nargs="*", metavar="N_name", help="for write: these only")
    asked = parser.parse_args(arguments)
    if unknown := [rung for rung in asked.rungs if rung not in CHAPTERS]:
        parser.error(f"there is no rung {unknown[0]}; choose from {', '.join(CHAPTERS)}")
    if asked.command == "check":
        lines = list(findings())
        print("\n".join(lines) or f"{len(CHAPTERS)} notebooks belong to their rungs")
        return 1 if lines else 0
    NOTEBOOKS.mkdir(exist_ok=True)
    for rung in asked.rungs or CHAPTERS:
        notebook = executed(rung)
        (NOTEBOOKS / f"{rung}.ipynb").write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print("\n".join(printed(notebook)))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
