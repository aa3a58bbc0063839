#!/usr/bin/env python3
"""Compares the book's calculator with the program on random configurations.

  tools/site/calculator.sh && tests/tools/calculator_check.py build/bin/tessera [--count 50] [--seed 1]

Both get the arguments of the form with random values, and must print the same figures: every byte, and times
to 12 digits. WebAssembly counts bytes in 32 bits: the calculator may refuse a configuration with a larger
tensor, by its own line. The calculator runs under node. CI runs it where Emscripten is installed; calculator_test.cpp
compares the same program built for this machine.
"""
import argparse
import json
import math
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALCULATOR = ROOT / "build/calculator/calculator.js"
PAGE = ROOT / "tools/site/calculator/page.js"
DIGITS = 1e-12
TOO_LARGE = re.compile(r"more than 2\^32 bytes|out of memory")

# Draws values for the form's own fields, so that a new field is compared too.
DRIVER = """
const createCalculator = require(process.argv[1]);
const { planArguments, kFields } = require(process.argv[2]);
const draws = JSON.parse(require('fs').readFileSync(0));
(async () => {
  for (const draw of draws) {
    const values = {};
    kFields.forEach(([name, , { choices, number }], index) => {
      values[name] = choices ? choices[Math.floor(draw[index] * choices.length)]
                             : number[0] + Math.floor(draw[index] ** 4 * (Math.min(number[1], 1024) - number[0] + 1));
    });
    if (values.nodes > 1) values.ranks = values.nodes * Math.max(1, Math.floor(values.ranks / values.nodes));
    const out = [], problems = [];
    const program = await createCalculator({ print: (line) => out.push(line), printErr: (line) => problems.push(line),
                                             noInitialRun: true });
    const words = [...planArguments(values), '--json'];
    const status = program.callMain(words);
    console.log(JSON.stringify({ words, status, out: out.join(''), problem: problems.join(' ') }));
  }
  process.exitCode = 0; // a refused configuration has set it
})();
"""


def difference(ours, theirs, place=""):
    """The first place where two values differ; None for equal ones."""
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return None if math.isclose(ours, theirs, rel_tol=DIGITS) else f"{place}: {ours} and {theirs}"
    if type(ours) is not type(theirs):
        return f"{place}: {ours} and {theirs}"
    if isinstance(ours, dict):
        if "problem" not in ours and TOO_LARGE.search(theirs.get("problem") or ""):
            return None  # one strategy alone is too large
        if ours.keys() != theirs.keys():
            return f"{place}: other keys"
        parts = ((key, ours[key], theirs[key]) for key in ours)
    elif isinstance(ours, list):
        if len(ours) != len(theirs):
            return f"{place}: {len(ours)} and {len(theirs)} entries"
        parts = ((index, *pair) for index, pair in enumerate(zip(ours, theirs)))
    else:
        return None if ours == theirs else f"{place}: {ours} and {theirs}"
    return next((found for key, a, b in parts if (found := difference(a, b, f"{place}/{key}"))), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not CALCULATOR.exists():
        sys.exit(f"calculator_check.py: {CALCULATOR} is missing; tools/site/calculator.sh builds it")
    draws = random.Random(options.seed)
    numbers = [[draws.random() for _ in range(16)] for _ in range(options.count)]
    lines = subprocess.run(["node", "-e", DRIVER, CALCULATOR, PAGE], input=json.dumps(numbers), text=True, check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    different = refused = too_large = 0
    for answer in map(json.loads, lines):
        ours = subprocess.run([options.program, *answer["words"]], capture_output=True, text=True, check=False)
        refused += ours.returncode != 0
        if ours.returncode == 0 and TOO_LARGE.search(answer["problem"]):
            too_large += 1
            continue
        if ours.returncode != answer["status"]:
            found = f"status {ours.returncode} and {answer['status']}: {ours.stderr} {answer['problem']}"
        elif ours.returncode != 0:
            found = None if ours.stderr.strip() == answer["problem"].strip() else f"{ours.stderr} {answer['problem']}"
        else:
            found = difference(json.loads(ours.stdout), json.loads(answer["out"]))
        if found:
            different += 1
            print(" ".join(answer["words"]), "\n  ", found)
    print(f"{len(lines)} configurations, {refused} refused by both, {too_large} too large for the calculator: "
          f"{different} with other figures")
    compared = len(lines) - refused - too_large
    return 0 if different == 0 and len(lines) == options.count and compared > options.count / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
