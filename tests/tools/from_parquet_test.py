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
    import pyarrow.feather
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
        self.assertIn("there is no file nowhere.parquet", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        if pyarrow is None:
            result = run(SCRIPT)
            self.assertIn(f"{SCRIPT}: reading it needs pyarrow: pip install pyarrow", result.stderr)


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

    def test_the_text_is_taken_without_a_choice_else_all_columns_with_text(self):
        first = run(self.path).stdout.splitlines()[0]
        self.assertEqual(json.loads(first), {"text": "row 0 é\n"})
        tags = pyarrow.array([["x", "y"]] * 2)
        table = pyarrow.table({"title": ["a", "b"], "tags": tags, "size": [1, 2]})
        pyarrow.parquet.write_table(table, self.path)
        first = run(self.path).stdout.splitlines()[0]
        self.assertEqual(json.loads(first), {"title": "a", "tags": ["x", "y"]})

    def test_keys_take_columns_by_their_name_and_by_names_inside(self):
        messages = [[{"role": "user", "content": "why", "score": float("nan")}], []]
        table = pyarrow.table({"messages": messages, "body": ["b", None], "size": [1, 2]})
        pyarrow.parquet.write_table(table, self.path)
        lines = run(self.path, "--keys", "content,body").stdout.splitlines()
        self.assertEqual([json.loads(line) for line in lines],
                         [{"messages": [{"role": "user", "content": "why", "score": None}], "body": "b"},
                          {"messages": [], "body": None}])
        result = run(self.path, "--keys", "text")
        self.assertIn("there is no column text; it has messages, body, size", result.stderr)

    def test_arrow_streams_and_feather_files_have_the_rows_of_the_table(self):
        table = pyarrow.table({"text": [f"row {i}" for i in range(3000)], "n": list(range(3000))})
        folder = Path(self.folder.name)
        with pyarrow.OSFile(str(folder / "a.arrow"), "wb") as out:
            with pyarrow.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table, max_chunksize=2000)
        pyarrow.feather.write_feather(table, folder / "a.feather")
        for name in ("a.arrow", "a.feather"):
            lines = run(folder / name).stdout.splitlines()
            self.assertEqual([json.loads(line) for line in lines], [{"text": f"row {i}"} for i in range(3000)])

    def test_a_truncated_or_damaged_table_is_one_line_with_the_way_on(self):
        folder = Path(self.folder.name)
        table = pyarrow.table({"text": [f"row {i}" for i in range(3000)]})
        with pyarrow.OSFile(str(folder / "a.arrow"), "wb") as out:
            with pyarrow.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table)
        pyarrow.feather.write_feather(table, folder / "a.feather")
        for path in (self.path, folder / "a.arrow", folder / "a.feather"):
            data = path.read_bytes()
            for damaged in (b"", data[:5], data[:len(data) // 2], b"no table" * 100):
                path.write_bytes(damaged)
                result = run(path)
                with self.subTest(path=path.name, size=len(damaged)):
                    self.assertEqual(result.returncode, 1)
                    self.assertEqual(result.stderr.count("\n"), 1)
                    self.assertRegex(result.stderr, f"^{path}: no .* truncated or damaged: .*; download or write")

    def test_an_unknown_column_is_named_with_those_that_exist(self):
        result = run(self.path, "--columns", "body")
        self.assertIn("there is no column body; it has text, url, size", result.stderr)
        self.assertEqual(result.returncode, 1)


if __name__ == "__main__":
    unittest.main()
