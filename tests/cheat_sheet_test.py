#!/usr/bin/env python3
"""cheat_sheet_test.py TESSERA: the table of docs/cheat_sheet.md agrees with tessera plan, for Llama 3 8B in bf16 and in f32.

Bytes held are equal without slots. Bytes sent are equal where no slot saves a gather, and at most 4 % more elsewhere.
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARAMETERS = 8_030_261_248
RANKS, SHARDS = 8, 4  # hsdp has two replicas
ROW = re.compile(r"^\| (ddp|zero1|zero2|fsdp|hsdp) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", re.M)


def value_of(formula):
    """A formula of the table, such as "6 (N-1)/N", for the ranks above."""
    python = re.sub(r"(?<=\d) \(", " * (", formula)
    return eval(python, {"N": RANKS, "F": SHARDS, "R": RANKS // SHARDS})  # the page's own text


def planned(dtype):
    """Bytes for each parameter that a rank holds and sends, by strategy."""
    run = subprocess.run([TESSERA, "plan", ROOT / "examples/llama3_8b.yaml", "--ranks", str(RANKS), "--json",
                          f"runtime.compute_dtype={dtype}", f"sharding.shard_size={SHARDS}", "sharding.strategy=hsdp"],
                         capture_output=True, text=True, check=True)
    plan = json.loads(run.stdout)["plans"][0]
    for one in [plan, *plan["strategies"]]:
        memory = one["memory"]
        yield one["strategy"], ((memory["total"]["mean"] - memory["slots"]["mean"]) / PARAMETERS,
                                one["bytes_sent"]["mean"] / PARAMETERS)


class CheatSheetTest(unittest.TestCase):
    def test_bytes_held_and_sent_are_those_of_the_plan(self):
        rows = ROW.findall((ROOT / "docs/cheat_sheet.md").read_text(encoding="utf-8"))
        self.assertEqual(len(rows), 5)
        for column, dtype in ((1, "f32"), (2, "bf16")):
            plans = dict(planned(dtype))
            for row in rows:
                with self.subTest(strategy=row[0], dtype=dtype):
                    held, sent = plans[row[0]]
                    self.assertAlmostEqual(value_of(row[column]), held, 3)
                    saved = 0.04 if row[0] in ("fsdp", "hsdp") else 1e-6
                    self.assertLessEqual(sent, value_of(row[column + 2]) * (1 + 1e-6))
                    self.assertGreaterEqual(sent, value_of(row[column + 2]) * (1 - saved))


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main()
