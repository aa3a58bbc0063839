"""Checks that the chapters use the glossary's words in the order of the book.

docs/glossary.md has a heading for each word, and names the chapter that explains it. docs/README.md has
the order: the links below its headings "Part ...". Then

  - the chapter of a word has it in italics;
  - an earlier chapter that uses the word links its first use to the glossary or to that chapter.

Headings, code, names of tests and a chapter's question (the line in italics below its title) do not
count as uses. A word with the mark <!-- also an everyday word --> is not searched for: a program cannot
tell "a block of the model" from "a block of text". A word without a chapter is known to the reader.
"""
import re

GLOSSARY, CONTENTS = "docs/glossary.md", "docs/README.md"
ENTRY = re.compile(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", re.S | re.M)
CHAPTERS = re.compile(r"\bChapters?: (.*)", re.S)
PAGE = re.compile(r"\]\(([\w/]+\.md)\)")
PART = re.compile(r"^## (Part [^\n]*)\n(.*?)(?=^## |\Z)", re.S | re.M)
EVERYDAY = "<!-- also an everyday word -->"


NO_PROSE = [re.compile(pattern, re.S | re.M) for pattern in (
    r"^ *```.*?^ *```$", r"<!--.*?-->", r"^#+ [^\n]*$", r"^ {4,}\S[^\n]*$", r"`[^`]*`",
    r'\btests?\s"[^"]*"')]
QUESTION = re.compile(r"\A\s*\*[^*]+\*$", re.M)


def prose_of(text):
    """A page without headings, code, comments and its question. Links keep their form."""
    for pattern in NO_PROSE:
        text = pattern.sub(" ", text)
    return QUESTION.sub(" ", text)


def pattern_of(word):
    """Finds the word, its plural, and other ways to join its parts."""
    body = re.sub(r"[-_ ]", r"[-_\\s]+", word)
    is_acronym = re.search("[A-Z]{2}|[a-z][A-Z]", word)
    return re.compile(rf"(?<![\w-])({body})(s|es)?(?![\w-])", 0 if is_acronym else re.I)


def words_of(glossary):
    """Each word with the pages that explain it, without everyday words."""
    for word, entry in ENTRY.findall(glossary):
        chapters = CHAPTERS.search(entry)
        if chapters and EVERYDAY not in entry:
            yield word, PAGE.findall(chapters[1])


def order_of(contents):
    """The chapters' pages, in the order of the book."""
    return [page for _, body in PART.findall(contents) for page in PAGE.findall(body)]


def without_targets(prose):
    """The prose with blanks in place of the links' targets, as long as they are."""
    return re.sub(r"\]\([^)]*\)", lambda link: "](" + " " * (len(link[0]) - 3) + ")", prose)


def link_around(prose, begin, end):
    """The target of the link that the range is the text of, or None."""
    opening = prose.rfind("[", 0, begin)
    match = re.compile(r"\[([^\]]*)\]\(([^)]*)\)", re.S).match(prose, opening) if opening >= 0 else None
    return match[2] if match and match.start(1) <= begin and end <= match.end(1) else None


def findings_in_words(read):
    """The findings in all chapters. `read` gives the text of a path, or None."""
    glossary, order = read(GLOSSARY) or "", order_of(read(CONTENTS) or "")
    words = [word for word, _ in ENTRY.findall(glossary)]
    if words != sorted(words, key=str.lower):
        yield f"{GLOSSARY}: the words are not in alphabetical order"
    prose = {page: prose_of(read(f"docs/{page}") or "") for page in order}
    for word, homes in words_of(glossary):
        for home in homes:
            if home not in order:
                yield f"{GLOSSARY}: {home}, which explains {word}, is in no part of the book"
            elif not re.search(rf"(?<!\*)\*{pattern_of(word).pattern}\*(?!\*)", prose[home], re.I):
                yield f"docs/{home}: the glossary sends the reader here for {word}, which is not in italics"
        known = min((order.index(home) for home in homes if home in order), default=len(order))
        for page in order[:known]:
            use = pattern_of(word).search(without_targets(prose[page]))
            target = link_around(prose[page], *use.span()) if use else ""
            if use and not (target and re.search(rf"glossary\.md#|{re.escape(homes[0])}", target)):
                yield f"docs/{page}: uses {use[0]!r} before its chapter ({homes[0]}), without a link"
