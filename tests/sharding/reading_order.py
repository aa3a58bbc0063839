#!/usr/bin/env python3
"""reading_order.py ROOT: some chapters list the code that says what a cut of the work does, in reading order.

A row names a file, or a file and the functions, classes or structs of it that are to be read. Each chapter of
LIMITS must have a list, its counts must be the lines that it names, and their sum must be right and at most the
limit. With --write the counts are corrected in place. Prints one line per finding and exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

LIMITS = {"sharding": 930, "tensor_parallelism": 500, "context_parallelism": 500, "pipeline_parallelism": 500}
LIST = re.compile(r"<!-- reading order -->\n(.*?)<!-- end of reading order -->", re.S)
ROW = re.compile(r"^\| \[`([^`]+)`\]\(\.\./\1\)((?:[:,] `[^`]+`)*) \| (\d+) \|", re.M)
SUM = re.compile(r"^\| together \| (\d+) \|", re.M)


def end_of_parentheses(text, begin):
    """The place behind the parenthesis that closes the one at `begin`."""
    depth = 0
    for place in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def definitions_of(name, text):
    """The definitions of a function, class or struct, without the comment above each. `Owner::name` is a member,
    defined outside of its class or in it. A class has all that is defined in it."""
    found = list(definitions_outside(name, text))
    if not found and "::" in name:
        owner, _, member = name.rpartition("::")
        for body in definitions_outside(owner, text):
            found += definitions_outside(member, body[body.index("\n"):])
    return found


def definitions_outside(name, text):
    heads = re.compile(rf"^( *)(?!return |else |new )(?:[\w:<>,&*\[\]]+[ &*]+)*({re.escape(name)})(?=\(| [^\n]*\{{$)", re.M)
    end = 0
    for head in heads.finditer(text):
        if head.start() < end:
            continue
        behind = head.end()
        if text[behind] == "(":
            behind = end_of_parentheses(text, behind)
        elif not re.search(r"\b(?:class|struct)\s", head[0]):
            continue
        body = re.compile(r"(?<= )\{|;").search(text, behind)  # in an initializer no space is before the brace
        if body is None or body[0] == ";":
            continue  # a declaration or a call
        first_line_end = text.index("\n", body.start())
        if text[body.start():first_line_end].endswith("}"):
            end = first_line_end
        else:
            end = re.compile(rf"^{head[1]}\}}", re.M).search(text, first_line_end).start()
        yield text[head.start():text.index("\n", end)]


def lines_of(text, names):
    """How many lines a row asks the reader to read, or the name that the text does not define."""
    if not names:
        return len(text.splitlines())
    total = 0
    for name in names:
        lines = definitions_of(name, text)
        if not lines:
            return name
        total += sum(len(one.splitlines()) for one in lines)
    return total


def names_in(suffix):
    return re.findall(r"`([^`]+)`", suffix)


def findings_in(chapter, text, read):
    """Yields what is wrong with a chapter's list. `read` gives a file's text, or None."""
    found = LIST.search(text)
    rows = ROW.findall(found[1]) if found else []
    if not rows:
        yield f"docs/{chapter}.md has no reading order"
        return
    for line in found[1].splitlines():
        if line.startswith("| [") and not ROW.match(line):
            yield f"docs/{chapter}.md: a row of the reading order has another form: {line[:60]}"
    for path, suffix, count in rows:
        code = read(path)
        lines = None if code is None else lines_of(code, names_in(suffix))
        if lines is None:
            yield f"docs/{chapter}.md: the reading order names {path}, which does not exist"
        elif isinstance(lines, str):
            yield f"docs/{chapter}.md: the reading order names {lines}, which {path} does not define"
        elif lines != int(count):
            yield f"docs/{chapter}.md: {path}{suffix} has {lines} lines; the reading order says {count}"
    total = sum(int(count) for _, _, count in rows)
    stated = SUM.search(found[1])
    if not stated or int(stated[1]) != total:
        yield f"docs/{chapter}.md: the counts add up to {total}; the reading order says {stated[1] if stated else 'no sum'}"
    if total > LIMITS[chapter]:
        yield f"docs/{chapter}.md: the reading order has {total} lines; at most {LIMITS[chapter]} are allowed"


def corrected(text, read):
    """The text with the right counts, where the code that they count exists."""
    found = LIST.search(text)
    if found is None:
        return text

    def row(match):
        code = read(match[1])
        lines = None if code is None else lines_of(code, names_in(match[2]))
        return match[0] if not isinstance(lines, int) else f"| [`{match[1]}`](../{match[1]}){match[2]} | {lines} |"

    table = ROW.sub(row, found[1])
    total = sum(int(count) for _, _, count in ROW.findall(table))
    table = SUM.sub(f"| together | {total} |", table)
    return text[:found.start(1)] + table + text[found.end(1):]


def main(arguments):
    root = Path(arguments[0])

    def read(path):
        file = root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    findings = []
    for chapter in LIMITS:
        page = root / "docs" / f"{chapter}.md"
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if "--write" in arguments and text:
            text = corrected(text, read)
            page.write_text(text, encoding="utf-8")
        findings += findings_in(chapter, text, read)
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"reading order: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: reading_order.py ROOT [--write]")
    sys.exit(main(sys.argv[1:]))
