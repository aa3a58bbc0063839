#!/usr/bin/env python3
"""The notebooks of the ladder belong to the rungs. Where PyTorch and nbclient are installed, they run from top to bottom
and print the kept lines: the same bytes, and the same first loss to three digits.
"""
import importlib.util
import json
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import notebooks  # noqa: E402: the path comes first

LINE = re.compile(r"N = (\d)  loss (\S+) -> \S+  \S+  sent +(\d+)  held +(\d+)")
RUNS = all(importlib.util.find_spec(name) for name in ("torch", "nbclient", "ipykernel"))


def kept(rung):
    return json.loads((notebooks.NOTEBOOKS / f"{rung}.ipynb").read_text(encoding="utf-8"))


class NotebooksTest(unittest.TestCase):
    def test_they_belong_to_the_rungs(self):
        self.assertEqual(list(notebooks.findings()), [])

    def test_the_written_file_is_the_rung(self):
        for rung in notebooks.CHAPTERS:
            pieces = [text.partition("\n")[2] for kind, text in notebooks.cells_of(rung) if text.startswith("%%writefile")]
            source = (notebooks.PYTHON / f"{rung}.py").read_text(encoding="utf-8")
            self.assertEqual([line for line in "\n".join(pieces).splitlines() if line],
                             [line for line in source.splitlines() if line], rung)

    def test_a_changed_rung_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            for path in notebooks.PYTHON.glob("*.py"):
                (place / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
            (place / "ladder.py").write_text("# changed\n", encoding="utf-8")
            with mock.patch.object(notebooks, "PYTHON", place):
                found = list(notebooks.findings())
        self.assertEqual(len(found), len(notebooks.CHAPTERS))
        self.assertIn("belongs to other sources", found[0])

    @unittest.skipUnless(RUNS, "PyTorch, nbclient or ipykernel is not installed")
    def test_they_run_and_print_the_kept_lines(self):
        for rung in notebooks.CHAPTERS:
            with self.subTest(rung=rung):
                now, then = ([LINE.search(line).groups() for line in notebooks.printed(notebook)]
                             for notebook in (notebooks.executed(rung), kept(rung)))
                for (ranks, loss, *numbers), (same_ranks, kept_loss, *kept_numbers) in zip(now, then, strict=True):
                    self.assertEqual((ranks, numbers), (same_ranks, kept_numbers))
                    self.assertAlmostEqual(float(loss), float(kept_loss), 3)


if __name__ == "__main__":
    unittest.main()
