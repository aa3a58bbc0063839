#!/usr/bin/env python3
"""reading_order.py ROOT: docs/sharding.md lists the files that say what FSDP does, in reading order.

The list must exist, its line counts must be those of the files, and their sum must be right and at most
LIMIT. With --write the counts are corrected in place. Prints one line per finding and exits 1 if there is
any.
"""
import re
import sys
from pathlib import Path

LIMIT = 900
LIST = re.compile(r"<!-- reading order -->\n(.*?)<!-- end of reading order -->", re.S)
ROW = re.compile(r"^\| \[`([^`]+)`\]\(\.\./\1\) \| (\d+) \|", re.M)
SUM = re.compile(r"^\| together \| (\d+) \|", re.M)


def findings_in(text, lines_of):
    """Yields what is wrong with the list. `lines_of` gives a file's number of lines, or None."""
    found = LIST.search(text)
    rows = ROW.findall(found[1]) if found else []
    if not rows:
        yield "docs/sharding.md has no reading order"
        return
    for path, count in rows:
        lines = lines_of(path)
        if lines is None:
            yield f"the reading order names {path}, which does not exist"
        elif lines != int(count):
            yield f"{path} has {lines} lines; the reading order says {count}"
    total = sum(int(count) for _, count in rows)
    stated = SUM.search(found[1])
    if not stated or int(stated[1]) != total:
        yield f"the counts add up to {total}; the reading order says {stated[1] if stated else 'no sum'}"
    if total > LIMIT:
        yield f"the reading order has {total} lines; at most {LIMIT} are allowed"


def corrected(text, lines_of):
    found = LIST.search(text)
    table = ROW.sub(lambda m: f"| [`{m[1]}`](../{m[1]}) | {lines_of(m[1])} |", found[1])
    total = sum(int(count) for _, count in ROW.findall(table))
    table = SUM.sub(f"| together | {total} |", table)
    return text[:found.start(1)] + table + text[found.end(1):]


def main(arguments):
    root = Path(arguments[0])
    chapter = root / "docs" / "sharding.md"

    def lines_of(path):
        file = root / path
        return len(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else None

    text = chapter.read_text(encoding="utf-8")
    if "--write" in arguments:
        text = corrected(text, lines_of)
        chapter.write_text(text, encoding="utf-8")
    findings = list(findings_in(text, lines_of))
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"reading order: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: reading_order.py ROOT [--write]")
    sys.exit(main(sys.argv[1:]))
