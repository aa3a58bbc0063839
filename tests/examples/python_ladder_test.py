#!/usr/bin/env python3
"""python_ladder_test.py BINARIES: the rungs in Python are the twins of the rungs in C++.

Each has at most 80 lines and the hooks of its twin. Where PyTorch is installed, every rung runs on 2 and on 4 ranks:
the first loss agrees to a millionth and the last to a ten-thousandth, and the bytes sent and held are equal. (AdamW
divides by the roots of small numbers, so rounding grows.) On rung 9 a row may differ: logits choose an expert, and
rounding can change a choice. 7_fully_shard.py, PyTorch's own FSDP, is compared with rung 7.
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TWINS = ROOT / "examples/ladder/python"
RUNGS = ["1_single", "2_ddp", "3_ddp_overlapped", "4_zero1", "5_zero2", "6_zero3", "7_fsdp", "8_hsdp", "9_expert_parallel",
         "10_tensor", "11_context", "12_pipeline"]
HOOKS = ("before_use", "after_use", "before_gradients", "after_gradients")
LINE = re.compile(r"N = (\d)  loss (\S+) -> (\S+)  \S+  sent +(\d+)  held +(\d+)")
ROW = 4 * 4 * (64 + 64 + 1 + 1) / 2  # bytes of a row and of its weight, there and back, in both passes
STEPS = 7  # that the bytes are a mean of
MODEL = 793856  # bytes of the parameters


def line_of(command):
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                         env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    found = LINE.search(run.stdout)
    if run.returncode or not found:
        raise AssertionError(f"{command} fails:\n{run.stdout}{run.stderr}")
    _, first, last, sent, held = found.groups()
    return float(first), float(last), int(sent), int(held)


class PythonLadderTest(unittest.TestCase):
    def test_a_rung_has_at_most_80_lines_of_at_most_120_characters(self):
        for rung in RUNGS:
            lines = (TWINS / f"{rung}.py").read_text(encoding="utf-8").splitlines()
            self.assertLessEqual(len(lines), 80, rung)
            self.assertLessEqual(max(map(len, lines)), 120, rung)

    def test_a_rung_has_the_hooks_of_its_twin(self):
        for rung in RUNGS:
            twin = (ROOT / f"examples/ladder/{rung}.cpp").read_text(encoding="utf-8")
            text = (TWINS / f"{rung}.py").read_text(encoding="utf-8")
            if rung == "8_hsdp":  # it is derived from rung 7
                text += (TWINS / "7_fsdp.py").read_text(encoding="utf-8")
            self.assertEqual([hook for hook in HOOKS if f"void {hook}(" in twin],
                             [hook for hook in HOOKS if f"def {hook}(" in text], rung)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_losses_and_bytes_are_those_of_the_twin(self):
        for rung in RUNGS:
            for ranks in ("2", "4"):
                with self.subTest(rung=rung, ranks=ranks):
                    ours = line_of([sys.executable, TWINS / f"{rung}.py", "--ranks", ranks, "--digits", "9"])
                    theirs = line_of([BINARIES / "ladder" / rung, ranks, "--state"])
                    for a, b, most in zip(ours[:2], theirs[:2], (1e-6, 1e-4)):
                        self.assertLessEqual(abs(a - b), most * b)
                    rows = 2 if rung == "9_expert_parallel" else 0
                    self.assertLessEqual(abs(ours[2] - theirs[2]), rows * ROW / STEPS)
                    self.assertEqual(ours[3], theirs[3])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_fully_shard_has_the_losses_of_rung_7_and_gathers_every_unit_twice(self):
        for ranks in (2, 4):
            ours = line_of([BINARIES / "ladder/7_fsdp", str(ranks), "--state"])
            theirs = line_of([sys.executable, TWINS / "7_fully_shard.py", "--ranks", str(ranks), "--digits", "9"])
            self.assertAlmostEqual(theirs[0] / ours[0], 1, 6)
            self.assertAlmostEqual(theirs[1] / ours[1], 1, 4)
            self.assertEqual(theirs[2], (ranks - 1) * 3 * MODEL)  # two gathers and a reduce-scatter
            self.assertEqual(theirs[3], 4 * MODEL // ranks)  # values, gradients, two moments, and no slots


if __name__ == "__main__":
    BINARIES = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
