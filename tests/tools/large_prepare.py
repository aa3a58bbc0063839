#!/usr/bin/env python3
"""Prepares much text in little memory, and measures it. By hand: it takes minutes and disk.

  tests/tools/large_prepare.py TESSERA TOKENIZER TEXT [--format txt] [--gigabytes 1] [--memory-limit-gb 1]

Writes so many gigabytes of text (the file TEXT again and again, each time with other numbers in its
lines) as files of the format, and runs `TESSERA prepare` on them with TOKENIZER. jsonl.zst and parquet
need zstandard and pyarrow. They are one file, and a gigabyte of Parquet is so large on the disk. Prints the
rate and the peak memory of all processes together. Ends with 1 if the peak is above the limit, or the rate
below 2 MB/s on each core.
"""
import argparse
import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

LEAST_RATE = 2.0  # MB/s on each core
FILE_BYTES = 64 * 10**6
FORMATS = ("txt", "jsonl.gz", "jsonl.zst", "parquet")


def numbered(lines):
    """Texts without end, each with other numbers in its lines."""
    number = 0
    while True:
        number += 1
        yield "\n".join(f"{line} {(i * number) % 9973}" if i % 7 == 0 else line
                        for i, line in enumerate(lines)) + "\n"


def write_txt(folder, texts, total):
    written = number = 0
    while written < total:
        with open(folder / f"part_{number:04}.txt", "w", encoding="utf-8") as file:
            size = 0
            while size < min(FILE_BYTES, total - written):
                size += file.write(next(texts))
        number += 1
        written += size
    return written


def write_packed(open_file):
    def write(path, texts, total):
        written = 0
        with open_file(path) as file:
            while written < total:
                line = (json.dumps({"text": next(texts)}) + "\n").encode()
                file.write(line)
                written += len(line)
        return written
    return write


@contextlib.contextmanager
def open_zstd(path):
    import zstandard
    with open(path, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as out:
        yield out


def write_parquet(path, texts, total):
    """One group of rows, which pyarrow would read whole; not compressed, for a file of the size."""
    import pyarrow
    from pyarrow import parquet
    schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string())])
    written, rows, batches = 0, 0, []
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        while written < total:
            part = [next(texts) for _ in range(16)]
            batches.append(pyarrow.record_batch([list(range(rows, rows + 16)), part], schema=schema))
            rows += 16
            written += sum(map(len, part))
        file.write_table(pyarrow.Table.from_batches(batches), row_group_size=rows)
    return written


def write_inputs(folder, kind, lines, total):
    """Returns the bytes of the text."""
    texts = numbered(lines)
    if kind == "txt":
        return write_txt(folder, texts, total)
    write = {"jsonl.gz": write_packed(lambda path: gzip.open(path, "wb", compresslevel=1)),
             "jsonl.zst": write_packed(open_zstd), "parquet": write_parquet}[kind]
    return write(folder / f"all.{kind}", texts, total)


def resident_bytes(process):
    """Of a process and those that it started."""
    with contextlib.suppress(OSError):
        pages = int(pathlib.Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
        return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(resident_bytes, children))
    return 0


def peak_of(command):
    """Runs a command. Its peak memory in bytes: of it and the programs that it starts, seen every 5 ms."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        peak = [0]

        def watch():
            while process.returncode is None:
                peak[0] = max(peak[0], resident_bytes(process.pid))
                time.sleep(0.005)

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = process.wait()
        watcher.join()
    if status != 0:
        sys.exit(f"{command[0]} ended with {status}")
    return peak[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("tokenizer")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--format", choices=FORMATS, default="txt")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--memory-limit-gb", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "in").mkdir()
        size = write_inputs(folder / "in", options.format,
                            options.text.read_text(encoding="utf-8").splitlines(), options.gigabytes * 1e9)
        begin = time.monotonic()
        peak = peak_of([options.tessera, "prepare", "--input", folder / "in", "--tokenizer",
                        options.tokenizer, "--out", folder / "out"]) / 1e9
        seconds = time.monotonic() - begin
    cores = len(os.sched_getaffinity(0))
    rate = size / 1e6 / seconds / cores
    print(f"{options.format}: {size / 1e9:.2f} GB in {seconds:.0f} s: {rate:.1f} MB/s on each of {cores} cores, "
          f"peak memory {peak:.2f} GB")
    return 0 if peak <= options.memory_limit_gb and rate >= LEAST_RATE else 1


if __name__ == "__main__":
    sys.exit(main())
