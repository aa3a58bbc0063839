#!/usr/bin/env python3
"""from_parquet.py FILE.parquet... [--columns text,...] > documents.jsonl

Writes the rows of Parquet files as JSON lines, which `tessera prepare` reads. Rows are read in groups, so
memory does not grow with the files. Without --columns it takes all columns of text. Needs pyarrow
(pip install pyarrow); nothing else of Tessera does.
"""
import argparse
import json
import signal
import sys
from pathlib import Path

ROWS = 1024  # read at a time


def text_columns(schema, types):
    return [field.name for field in schema
            if types.is_string(field.type) or types.is_large_string(field.type)]


def write_lines(path, columns, out):
    import pyarrow.parquet as parquet
    from pyarrow import types
    with parquet.ParquetFile(path) as file:
        known = file.schema_arrow.names
        missing = [column for column in columns or [] if column not in known]
        if missing:
            sys.exit(f"{path}: there is no column {missing[0]}; it has {', '.join(known)}")
        chosen = columns or text_columns(file.schema_arrow, types)
        if not chosen:
            sys.exit(f"{path}: it has no column of text, only {', '.join(known)}")
        for rows in file.iter_batches(batch_size=ROWS, columns=chosen):
            for row in rows.to_pylist():
                out.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Writes Parquet files as JSON lines.")
    parser.add_argument("files", nargs="+", metavar="FILE.parquet", type=Path)
    parser.add_argument("--columns", type=lambda text: text.split(","),
                        help="names, separated by commas; all columns of text without it")
    arguments = parser.parse_args()
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        sys.exit("from_parquet.py needs pyarrow: pip install pyarrow")
    for file in arguments.files:
        if not file.is_file():
            sys.exit(f"there is no file {file}")
        write_lines(file, arguments.columns, sys.stdout)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
