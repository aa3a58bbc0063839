"""Checks track 1, the way through the book that takes 90 minutes: at most 18,000 words, and a figure in each chapter.

The row "track 1" of docs/README.md lists its chapters. Code, outputs and solutions do not count as words.
"""
import re

CONTENTS = "docs/README.md"
MOST_WORDS = 18000
ROW = re.compile(r"^\|[^|]*track 1[^|]*\|([^|]*)\|$", re.M | re.I)
PAGE = re.compile(r"\]\((\w+)\.md\)")
NOT_PROSE = re.compile(r"<details>.*?</details>|<!--.*?-->|^ *```.*?^ *```$", re.S | re.M)


def findings_in_track(read):
    row = ROW.search(read(CONTENTS) or "")
    if row is None:
        yield f"{CONTENTS}: has no row for track 1"
        return
    words = 0
    for page in PAGE.findall(row[1]):
        text = read(f"docs/{page}.md") or ""
        words += len(NOT_PROSE.sub("", text).split())
        if "![" not in text:
            yield f"docs/{page}.md: is in track 1 and has no figure"
    if words > MOST_WORDS:
        yield f"{CONTENTS}: track 1 has {words} words; at most {MOST_WORDS}"
