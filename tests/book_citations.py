"""Checks the bibliography against the pages that cite its sources.

A row of docs/bibliography.md begins with the authors and the year in bold, as the book cites them. Its last cell links to
the pages, headers and programs that cite it. Then

  - each of these has the first author's name and, close behind, the year;
  - every name with a year in a page of the book has a row.
"""
import posixpath
import re

PAGE = "docs/bibliography.md"
ROW = re.compile(r"^\| \*\*(.+?) (\d{4})\*\*.*\| ([^|]*) \|$", re.M)
TARGET = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
NAME = rf"(?!(?:{MONTHS})\b)[A-Z][a-z][\w-]*"
CITATION = re.compile(rf"\b({NAME})(?: et al\.,?| Team|(?:(?:,| and|, and) (?:van de )?{NAME})+)? \(?((?:19|20)\d\d)\b")
NO_PROSE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|`[^`\n]*`", re.S | re.M)


def citations_in(text):
    """The name and the year of every citation. "2024 and 2025" is that of 2024."""
    return set(CITATION.findall(" ".join(NO_PROSE.sub(" ", text).split())))


def cites(text, name, year):
    """Whether the year stands close behind the name. A page may name a source more than once."""
    words = re.sub(r"[\s/]+", " ", text)
    return re.search(rf"\b{re.escape(name)}\b[^|]{{0,80}}\b{year}\b", words) is not None


def findings_in_citations(read, pages):
    """The findings in the bibliography and in the pages, which are paths. `read` gives the text of a path, or None."""
    rows = ROW.findall(read(PAGE) or "")
    known = set()
    for authors, year, cell in rows:
        name = re.split(r",| and | et al| Team", authors)[0]
        known.add((name, year))
        targets = TARGET.findall(cell)
        if not targets:
            yield f"{PAGE}: no page cites {name} {year}"
        for target in targets:
            path = posixpath.normpath(posixpath.join("docs", target))
            if not cites(read(path) or "", name, year):
                yield f"{PAGE}: {path} does not cite {name} {year}"
    for page in pages:
        if page != PAGE:
            for name, year in sorted(citations_in(read(page) or "") - known):
                yield f"{page}: the bibliography lacks {name} {year}"
