#!/usr/bin/env python3
"""from_parquet.py writes every row, chooses columns and names what is missing. Skipped without pyarrow."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

SCRIPT = Path(__file__).resolve().parents[2] / "tools/data/from_parquet.py"


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True,
                          check=False)


class ArgumentsTest(unittest.TestCase):
    def test_a_missing_file_or_library_is_one_line(self):
        result = run("nowhere.parquet")
        self.assertEqual(result.returncode, 1)
        expected = "pip install pyarrow" if pyarrow is None else "there is no file nowhere.parquet"
        self.assertIn(expected, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)


@unittest.skipIf(pyarrow is None, "pyarrow is not installed")
class ParquetTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "a.parquet"
        rows = 3000
        table = pyarrow.table({"text": [f"row {i} é\n" for i in range(rows)],
                               "url": [f"u{i}" for i in range(rows)], "size": list(range(rows))})
        pyarrow.parquet.write_table(table, self.path, row_group_size=700)

    def tearDown(self):
        self.folder.cleanup()

    def test_every_row_is_a_line_in_order(self):
        lines = run(self.path, "--columns", "text").stdout.splitlines()
        self.assertEqual([json.loads(line) for line in lines],
                         [{"text": f"row {i} é\n"} for i in range(3000)])

    def test_columns_of_text_are_taken_without_a_choice(self):
        first = run(self.path).stdout.splitlines()[0]
        self.assertEqual(json.loads(first), {"text": "row 0 é\n", "url": "u0"})

    def test_an_unknown_column_is_named_with_those_that_exist(self):
        result = run(self.path, "--columns", "body")
        self.assertIn("there is no column body; it has text, url, size", result.stderr)
        self.assertEqual(result.returncode, 1)


if __name__ == "__main__":
    unittest.main()
