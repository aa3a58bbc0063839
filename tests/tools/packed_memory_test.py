#!/usr/bin/env python3
"""packed_memory_test.py TESSERA

Four times as much packed text takes no more memory: `tessera prepare` reads archives and tables in pieces.
large_prepare.py measures a gigabyte. Formats whose Python package is not installed are skipped.
"""
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

from large_prepare import peak_of, write_inputs

NEEDS = {"jsonl.gz": "gzip", "jsonl.zst": "zstandard", "parquet": "pyarrow"}
MEGABYTES = (20, 80)
MOST_GROWTH = 24e6  # of 60 MB


class MemoryTest(unittest.TestCase):
    def test_memory_does_not_grow_with_packed_text(self):
        lines = [f"line {i} of a text" for i in range(400)]
        for kind, package in NEEDS.items():
            if importlib.util.find_spec(package) is None:
                continue
            peaks = []
            for megabytes in MEGABYTES:
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    (folder / "in").mkdir()
                    write_inputs(folder / "in", kind, lines, megabytes * 1e6)
                    peaks.append(peak_of([TESSERA, "prepare", "--input", folder / "in", "--tokenizer", "bytes",
                                          "--out", folder / "out"]))
            with self.subTest(kind=kind, peaks=peaks):
                self.assertLess(peaks[1] - peaks[0], MOST_GROWTH)


if __name__ == "__main__":
    TESSERA = sys.argv.pop()
    unittest.main()
