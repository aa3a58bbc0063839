"""Checks README.md: its length, its beginning and its figures.

A reader decides within a minute. So the page has at most 600 words, and "FSDP" and a picture come within the first 100.

A figure is a number outside of code, of names such as GPT-2 and of what a marker says that a program prints. Each stands in
a page that the same paragraph or table links to, or in an equation, whose operands a program prints and which
book_exercises computes again.
"""
import re

import book_exercises

PAGE = "README.md"
WORDS, BEGINNING = 600, 100
SHOWN = re.compile(r"<!-- printed by [^>]+ -->.*?<!-- end -->", re.S)
NO_FIGURES = re.compile(r"`[^`]*`|^ {4}.*$|\]\([^)]*\)|Llama \d(?: to \d|\.\d)?(?: \d+B)?|WSL \d|Debian \d+", re.M)
FIGURE = re.compile(r"(?<![\w.,+-])\d[\d,]*(?:\.\d+)?(?![\w+-])")
LINK = re.compile(r"\]\((docs/[^)#]+\.md)")


def findings_in_figures(paragraph, shown, read):
    """The figures of a paragraph that no linked page has."""
    known = set()
    for left, right in book_exercises.equations_in(paragraph):
        if not book_exercises.holds(left, right):
            yield f"this is wrong: {left} = {right}"
        operands = FIGURE.findall(left)
        yield from (f"no program prints the figure {one}" for one in operands if one not in FIGURE.findall(shown))
        known |= {*operands, right}
    for path in LINK.findall(paragraph):
        known |= set(FIGURE.findall(read(path) or ""))
    for figure in FIGURE.findall(NO_FIGURES.sub(" ", paragraph)):
        if figure not in known:
            yield f"no page that its paragraph links to has the figure {figure}"


def findings_in_readme(read):
    """The findings in the README. `read` gives the text of a path, or None."""
    text = read(PAGE) or ""
    words = text.split()
    if len(words) > WORDS:
        yield f"{PAGE}: {len(words)} words; expected at most {WORDS}"
    beginning = " ".join(words[:BEGINNING])
    if "FSDP" not in beginning or "![" not in beginning:
        yield f"{PAGE}: its first {BEGINNING} words lack the word FSDP or a picture"
    shown = " ".join(SHOWN.findall(text))
    for paragraph in re.split(r"\n{2,}", SHOWN.sub("", text)):
        yield from (f"{PAGE}: {finding}" for finding in findings_in_figures(paragraph, shown, read))
