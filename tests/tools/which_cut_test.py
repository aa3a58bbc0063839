#!/usr/bin/env python3
"""which_cut_test.py TESSERA: the table "which cut when" has every row, and the rows that cost little are what the search finds.

`tools/bench/which_cut.py check` computes all rows again.
"""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bench"))
import which_cut  # noqa: E402: the path comes first

CHEAP = ["llama3-8b-8", "llama3-70b-8"]
TESSERA = sys.argv.pop()


def candidate(ms, **cuts):
    return {"strategy": "zero1", "shard_size": 0, "keys": [], "step_seconds": ms / 1e3, "exposed_seconds": 0.0, "bubble": 0.0,
            "peak": 2**30, **{cut: cuts.get(cut, 1) for cut in which_cut.CUTS}}


class TableTest(unittest.TestCase):
    def test_the_page_has_the_rows_of_all_cases_in_order(self):
        lines = which_cut.shown().splitlines(keepends=True)
        self.assertEqual("".join(lines[:2]), which_cut.head())
        starts = [which_cut.row(case, []).split(" | nothing fits")[0] for case in which_cut.CASES]
        self.assertEqual(len(lines) - 2, len(starts))
        for line, start in zip(lines[2:], starts):
            self.assertTrue(line.startswith(start), line)

    def test_rows_that_cost_little_are_found_again(self):
        for name in CHEAP:
            with self.subTest(row=name):
                run = subprocess.run([sys.executable, ROOT / "tools/bench/which_cut.py", "row", name, TESSERA],
                                     capture_output=True, text=True, check=True)
                self.assertIn(run.stdout, which_cut.shown())


class ChoiceTest(unittest.TestCase):
    def test_the_deciding_cut_is_the_one_that_the_fastest_step_needs_most(self):
        best = candidate(10, tensor=8, pipeline=4)
        without_tensor, without_pipeline = candidate(12, pipeline=8), candidate(20, tensor=8)
        found = [best, without_tensor, without_pipeline]
        self.assertEqual(which_cut.next_best(found), ("pipeline", without_pipeline))
        self.assertEqual(which_cut.next_best(found[:2]), ("pipeline", None))  # nothing fits without it

    def test_next_to_no_cut_comes_the_fastest_cut(self):
        cut = candidate(11, tensor=2)
        self.assertEqual(which_cut.next_best([candidate(10), candidate(10.5), cut]), (None, cut))

    def test_a_candidate_is_described_by_its_sizes(self):
        one = candidate(10, tensor=8, pipeline=4, expert=2)
        one["keys"] = ["sharding.pipeline_schedule=interleaved", "sharding.pipeline_chunks=2",
                       "sharding.activation_checkpointing=full"]
        self.assertEqual(which_cut.described(one), "zero1, tensor 8, pipeline 4 (interleaved, 2 chunks), expert 2, recomputed")

    def test_tokens_are_rounded_to_powers_of_two(self):
        self.assertEqual([which_cut.tokens(number) for number in (2**18, 2**20, 2**22)], ["256k", "1M", "4M"])


if __name__ == "__main__":
    unittest.main()
