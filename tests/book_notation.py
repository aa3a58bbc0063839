"""Checks that a letter has one meaning in a part of the book.

docs/README.md has tables below "## Notation". The line in bold above a table names its chapters: a part
("Part II"), or links to pages. A row is | letters | meaning |. Words in italics in a meaning are the
letter's nouns: "N | *ranks*", "N, n | *ranks*; *tokens*". A page that two tables name follows both. In the
prose of the chapters

  - "N tokens" is wrong if tokens is a noun of other letters only;
  - "N is the number of" and "Let N be the" go on with a noun of N;
  - a capital letter in a formula is in the table. A formula is a line with four blanks before it, or a
    letter next to a number, an operator or another letter.
"""
import re

import book_words

SECTION = re.compile(r"^## Notation\n(.*?)(?=^## |\Z)", re.S | re.M)
TABLE = re.compile(r"^\*\*([^\n]+)\*\*\n\n((?:\|[^\n]*\n)+)", re.M)
ROW = re.compile(r"^\| ([\w, ]+?) \| ([^|\n]*) \|$", re.M)
NOUN = re.compile(r"(?<!\*)\*([a-z-]+)\*")

LETTER = r"(?<![\w.'’/^-])([A-HJ-Z][fkqt]|[B-HJ-Zb-wyz])(?![\w'’.]\w|\w)"
# Not "16 / N bytes" or "2 P n operations": there the noun belongs to the whole formula.
COUNTED = re.compile(rf"(?<![\d)/*+] )(?<!\b[A-Za-z] ){LETTER} ([a-z-]{{4,}})\b")
DEFINED = re.compile(rf"(?<!of ){LETTER} (?:is|are|be) the ((?:number of )?(?:[a-z]+[ -]){{0,2}}[a-z]+)")
NO_FORMULA = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|`[^`]*`|\]\([^)]*\)|\bPart [IVX]+\b|^#.*?$", re.S | re.M)
FORMULA = re.compile(r"(?:[\d)] |[-+*/=(] ?|\b[A-Z] )([B-HJ-Z])(?![\w'’+.-]\w|\w|\+)"
                     r"|(?<![\w.'’/-])([B-HJ-Z]) ?(?:[-+*/=)^](?=[ \d(])|\((?=\d))")


def tables_of(contents):
    """For each table: the pages that follow it, and the nouns of each of its letters."""
    section = SECTION.search(contents)
    parts = {name: book_words.PAGE.findall(body) for name, body in book_words.PART.findall(contents)}
    for title, body in TABLE.findall(section[1] if section else ""):
        pages = book_words.PAGE.findall(title)
        for name, of_part in parts.items():
            if not pages and name.split(":")[0] == title:
                pages = of_part
        nouns = {}
        for letters, meaning in ROW.findall(body):
            meanings = meaning.split("; ")
            letters = letters.split(", ")
            if len(meanings) != len(letters):
                meanings = [meaning] * len(letters)
            for letter, meaning in zip(letters, meanings):
                if letter in nouns:
                    yield f"{title}: {letter} has two rows", [], {}
                nouns[letter] = set(NOUN.findall(meaning))
        nouns.pop("letter", None)
        yield re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title), pages, nouns


def findings_in_page(page, text, title, nouns):
    letters_of = {}
    for letter, words in nouns.items():
        for word in words:
            letters_of.setdefault(word, set()).add(letter)
    prose = re.sub(r"\s+", " ", book_words.without_targets(book_words.prose_of(text)))
    for use in COUNTED.finditer(prose):
        letters = letters_of.get(use[2], {use[1]})
        if use[1] not in letters:
            yield (f"docs/{page}: '{use[0]}': the notation of {title} has {', '.join(sorted(letters))} "
                   f"for {use[2]}")
    for use in DEFINED.finditer(prose):
        expected = nouns.get(use[1], set())
        if expected and not expected & set(re.findall(r"[a-z-]+", use[2])):
            yield (f"docs/{page}: '{use[0]}': the notation of {title} has {use[1]} for "
                   f"{', '.join(sorted(expected))}")
    formulas = NO_FORMULA.sub(" ", text)
    used = {use[1] or use[2] for use in FORMULA.finditer(formulas)}
    for letter in sorted(used - nouns.keys()):
        yield f"docs/{page}: the letter {letter} is not in the notation of {title}"


def findings_in_notation(read):
    """The findings in all chapters. `read` gives the text of a path, or None."""
    tables = list(tables_of(read(book_words.CONTENTS) or ""))
    if not tables:
        yield f"{book_words.CONTENTS}: there is no table below ## Notation"
    for title, pages, nouns in tables:
        if not pages:
            yield f"{book_words.CONTENTS}: the table of {title} names no chapter, or a letter twice"
        for page in pages:
            yield from findings_in_page(page, read(f"docs/{page}") or "", title, nouns)
