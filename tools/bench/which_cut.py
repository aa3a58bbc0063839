#!/usr/bin/env python3
"""which_cut.py COMMAND [TESSERA]: the table "which cut when" of docs/choosing.md, from `tessera plan --search`.

  which_cut.py rows                          the names of the table's rows
  which_cut.py row llama3-8b-64 TESSERA      one row
  which_cut.py check TESSERA                 computes every row again and names those that differ: minutes of a core
  which_cut.py write TESSERA                 writes the table into the page

TESSERA is build/bin/tessera by default. The GPUs have 80 GiB and the rates of the H100's data sheet, eight on a node.
Every candidate of a row trains on the same batch. The deciding cut of a mesh is the one without which the fastest step
is slowest. The last columns are the fastest candidate without it. If the fastest one has no cut, they are the fastest
one with a cut.
"""
import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/choosing.md"
TABLE = re.compile(r"(?<=<!-- table of tools/bench/which_cut.py -->\n).*?(?=<!-- end of table -->)", re.S)
CUTS = ["tensor", "context", "pipeline", "expert"]
SHORT, LONG = 8192, 131072  # tokens of a row


class Case(NamedTuple):
    model: str
    gpus: int
    rows: int  # of a batch
    length: int = SHORT

    @property
    def name(self):
        return f"{self.model}-{self.gpus}" + ("-long" if self.length == LONG else "")


CASES = [Case(model, gpus, rows) for model in ("llama3-8b", "llama3-70b", "qwen3-30b-a3b")
         for gpus, rows in ((8, 32), (64, 128), (1024, 512))]
CASES += [Case("llama3-8b", gpus, rows, LONG) for gpus, rows in ((8, 8), (64, 16), (1024, 32))]


def search(case, tessera):
    """The candidates, the fastest first; none if nothing fits."""
    keys = {"data.batch_size": case.rows, "data.sequence_length": case.length, "model.context": case.length,
            "data.accumulation_steps": max(1, case.rows // case.gpus), "runtime.compute_dtype": "bf16",
            "runtime.device": "cpu", "runtime.threads": 1}
    run = subprocess.run([tessera, "plan", case.model, "--ranks", str(case.gpus), "--nodes", str(-(-case.gpus // 8)),
                          "--machine", "h100", "--memory", "80GiB", "--search", "--json",
                          *(f"{key}={value}" for key, value in keys.items())], capture_output=True, text=True)
    if run.returncode == 1 and "no strategy fits the memory" in run.stderr:
        return []
    if run.returncode:
        sys.exit(f"which_cut.py: {case.name}: {run.stderr.strip()}")
    return json.loads(run.stdout)["candidates"]


def next_best(found):
    """The deciding cut of the first candidate, or None, and the first candidate without it, or None."""
    own = [cut for cut in CUTS if found[0][cut] > 1]
    if not own:
        return None, next((one for one in found if any(one[cut] > 1 for cut in CUTS)), None)
    without = {cut: next((one for one in found if one[cut] == 1), None) for cut in own}
    decides = max(own, key=lambda cut: without[cut]["step_seconds"] if without[cut] else float("inf"))
    return decides, without[decides]


def described(one):
    """A candidate in words: "zero1, tensor 8, pipeline 4 (zero_bubble)"."""
    values = dict(key.split("=") for key in one["keys"])
    words = [one["strategy"] + (f" on {one['shard_size']}" if one["shard_size"] else "")]
    for cut in CUTS:
        if one[cut] > 1:
            words.append(f"{cut} {one[cut]}")
    if one["pipeline"] > 1:
        chunks = values.get("sharding.pipeline_chunks")
        words[-1 if one["expert"] == 1 else -2] += (
            f" ({values['sharding.pipeline_schedule']}{', ' + chunks + ' chunks' if chunks else ''})")
    if values.get("sharding.activation_checkpointing") == "full":
        words.append("recomputed")
    return ", ".join(words)


def tokens(number):
    return f"{number / 2**20:g}M" if number >= 2**20 else f"{number / 2**10:g}k"


def milliseconds(one):
    return f"{1e3 * one['step_seconds']:,.0f}"


def row(case, found):
    cells = [case.model, f"{case.length:,}", f"{case.gpus:,}", tokens(case.rows * case.length)]
    if not found:
        cells += ["nothing fits"] + [""] * 6
    else:
        best = found[0]
        decides, other = next_best(found)
        label = f"without {decides}: " if decides else "with a cut: "
        cells += [described(best), milliseconds(best), f"{1e3 * best['exposed_seconds']:,.0f}",
                  f"{100 * best['bubble']:.0f}%", f"{best['peak'] / 2**30:.0f}",
                  label + (described(other) if other else "nothing fits" if decides else "none is as fast"),
                  milliseconds(other) if other else ""]
    return "| " + " | ".join(cells) + " |\n"


def head():
    names = ["model", "row", "GPUs", "tokens a step", "fastest", "step ms", "exposed ms", "bubble", "peak GiB", "next", "step ms"]
    return "| " + " | ".join(names) + " |\n|---|--:|--:|--:|---|--:|--:|--:|--:|---|--:|\n"


def shown():
    """The table in the page."""
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    if not found:
        sys.exit(f"which_cut.py: {PAGE} has no mark '<!-- table of tools/bench/which_cut.py -->' with an end")
    return found[0]


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("rows")
    one = commands.add_parser("row")
    one.add_argument("name", choices=[case.name for case in CASES], metavar="ROW")
    for command in (one, commands.add_parser("check"), commands.add_parser("write")):
        command.add_argument("tessera", nargs="?", default=str(ROOT / "build/bin/tessera"), metavar="TESSERA")
    options = parser.parse_args()
    if options.command == "rows":
        print("\n".join(case.name for case in CASES))
    elif options.command == "row":
        case = next(case for case in CASES if case.name == options.name)
        print(row(case, search(case, options.tessera)), end="")
    else:
        lines = [head()] + [row(case, search(case, options.tessera)) for case in CASES]
        if options.command == "check":
            table = shown()
            different = [line for line in lines if line not in table]
            print("".join(f"the page lacks {line}" for line in different), end="")
            sys.exit(bool(different or table != "".join(lines)))
        PAGE.write_text(TABLE.sub(lambda _: "".join(lines), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
