#!/usr/bin/env python3
"""from_parquet.py FILE... [--columns text,...] > documents.jsonl

Writes the rows of Parquet, Arrow and Feather files as JSON lines. `tessera prepare` runs it for such files. Rows are
read in groups, so memory does not grow with the files. Without --columns it takes all columns of text. Needs pyarrow
(pip install pyarrow); nothing else of Tessera does.
"""
import argparse
import json
import math
import signal
import sys
from pathlib import Path

MOST_ROWS = 1024  # read at a time, or fewer with so many bytes
BATCH_BYTES = 16 << 20
BUFFER_BYTES = 1 << 20


def fields_in(kind):
    """The fields inside a type, at any depth: a structure's, and the elements of a list."""
    from pyarrow import types
    if types.is_struct(kind):
        inside = [kind.field(i) for i in range(kind.num_fields)]
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inside = [kind.value_field]
    else:
        inside = []
    for field in inside:
        yield field
        yield from fields_in(field.type)


def has_text(field):
    from pyarrow import types

    def is_text(kind):
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return types.is_string(kind) or types.is_large_string(kind)

    return is_text(field.type) or any(is_text(inner.type) for inner in fields_in(field.type))


def chosen_columns(path, schema, columns, keys):
    """The columns that were asked for; or those with a key as their name or inside; or those of text."""
    names = schema.names
    for column in columns or []:
        if column not in names:
            sys.exit(f"{path}: there is no column {column}; it has {', '.join(names)}")
    if columns:
        return columns
    if keys:
        keyed = [field.name for field in schema
                 if field.name in keys or any(inner.name in keys for inner in fields_in(field.type))]
        if not keyed:
            sys.exit(f"{path}: there is no column {' or '.join(keys)}; it has {', '.join(names)}")
        return keyed
    texts = [field.name for field in schema if has_text(field)]
    if not texts:
        sys.exit(f"{path}: it has no column of text, only {', '.join(names)}")
    return ["text"] if "text" in texts else texts


def plain(value):
    """A value that JSON has; null in the place of others."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float)) else None


def batches_of(path, choose):
    """The rows of a file in groups, with the columns that `choose` takes from the schema."""
    import pyarrow
    from pyarrow import ipc, parquet
    if path.suffix == ".parquet":
        # Pages come through a buffer; by default all columns of a group of rows would be in memory.
        with parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
            meta = file.metadata
            size = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
            rows = max(1, min(MOST_ROWS, BATCH_BYTES * meta.num_rows // max(size, 1)))
            yield from file.iter_batches(batch_size=rows, columns=choose(file.schema_arrow), use_threads=False)
        return
    with pyarrow.OSFile(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"  # as Feather is; `datasets` writes streams
        source.seek(0)
        reader = ipc.open_file(source) if is_file else ipc.open_stream(source)
        columns = choose(reader.schema)
        for batch in (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader:
            batch = batch.select(columns)
            for first in range(0, batch.num_rows, MOST_ROWS):
                yield batch.slice(first, MOST_ROWS)


def write_lines(path, columns, keys, out):
    import pyarrow
    kind = {".parquet": "Parquet", ".arrow": "Arrow"}.get(path.suffix, "Feather (version 2)")
    try:
        for rows in batches_of(path, lambda schema: chosen_columns(path, schema, columns, keys)):
            for row in rows.to_pylist():
                out.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        sys.exit(f"{path}: no {kind} file, truncated or damaged: {reason}; download or write it again")
    out.flush()


def main():
    def names(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description="Writes Parquet, Arrow and Feather files as JSON lines.")
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    parser.add_argument("--columns", type=names,
                        help="names, separated by commas; all columns of text without it")
    parser.add_argument("--keys", type=names,
                        help="the columns with one of these names, or with one in a structure inside")
    arguments = parser.parse_args()
    for file in arguments.files:
        if not file.is_file():
            sys.exit(f"there is no file {file}")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        sys.exit(f"{arguments.files[0]}: reading it needs pyarrow: pip install pyarrow")
    sys.stdout.reconfigure(encoding="utf-8")
    for file in arguments.files:
        write_lines(file, arguments.columns, arguments.keys, sys.stdout)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
