#!/usr/bin/env python3
"""Prepares much text in little memory, and measures it. By hand: it takes minutes and disk.

  tests/tools/large_prepare.py TESSERA TOKENIZER TEXT [--gigabytes 1] [--memory-limit-gb 1]

Writes so many gigabytes of text (the file TEXT again and again, each time with other numbers in its
lines, in files of 64 MB) and runs `TESSERA prepare` on them with TOKENIZER. Prints the rate and the
peak memory. Ends with 1 if the peak is above the limit, or the rate below 2 MB/s on each core.
"""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

LEAST_RATE = 2.0  # MB/s on each core
FILE_BYTES = 64 * 10**6


def write_texts(folder, text, total):
    """Writes files until they have `total` bytes."""
    lines = text.splitlines()
    written = number = 0
    while written < total:
        with open(folder / f"part_{number:04}.txt", "w", encoding="utf-8") as file:
            size = 0
            while size < min(FILE_BYTES, total - written):
                number += 1
                size += file.write("\n".join(f"{line} {(i * number) % 9973}" if i % 7 == 0 else line
                                             for i, line in enumerate(lines)) + "\n")
        written += size
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("tokenizer")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--memory-limit-gb", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "in").mkdir()
        size = write_texts(folder / "in", options.text.read_text(encoding="utf-8"),
                           options.gigabytes * 1e9)
        begin = time.monotonic()
        subprocess.run([options.tessera, "prepare", "--input", folder / "in", "--tokenizer",
                        options.tokenizer, "--out", folder / "out"], check=True)
        seconds = time.monotonic() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    cores = len(os.sched_getaffinity(0))
    rate = size / 1e6 / seconds / cores
    print(f"{size / 1e9:.2f} GB in {seconds:.0f} s: {rate:.1f} MB/s on each of {cores} cores, "
          f"peak memory {peak:.2f} GB")
    return 0 if peak <= options.memory_limit_gb and rate >= LEAST_RATE else 1


if __name__ == "__main__":
    sys.exit(main())
