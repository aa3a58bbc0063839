"""Checks the form of the book's chapters, and the solutions of their exercises.

A solution is the text of a <details>. Its equations are computed again: those whose left side has numbers
and operators only, with at least one operator, and whose right side is a number. "x" multiplies, "/"
divides, "^" takes a power, and commas group digits. The right side may be rounded.

Every chapter of the book (the parts of docs/README.md) begins with its question and with the chapters that it
needs, has a program with its output outside of the solutions, headings "Takeaways" and "Exercises" and at least two
solutions, and ends with a link to the next chapter.
docs/labs.md has labs in place of exercises.
"""
import posixpath
import re

DETAILS = re.compile(r"<details>(.*?)</details>", re.S)
OUTPUT = re.compile(r"<!-- (?:printed by|lines of|counted by) ")
MARK = re.compile(r"<!-- (?:from|program|printed by|lines of|in words)\b")
NUMBER = r"\d[\d,]*(?:\.\d+)?"
EQUATION = re.compile(rf"(?<![\w.])((?:\(\s*)*{NUMBER}(?:[\s()]*(?:[-+/^]|\bx\b)[\s()]*{NUMBER})+(?:\s*\))*)"
                      rf"\s*=\s*({NUMBER})")


QUESTION = re.compile(r"\A# [^\n]+\n\n\*[^*]+\?\*\n")
PREREQUISITES = re.compile(r"^(?:Before this chapter: |This chapter needs no other\.)", re.M)
NEXT = re.compile(r"\bNext: \[[^\]]*\]\(([^)#]+)\)")


def value_of(expression):
    """The value of an expression of numbers, or None if it is no expression."""
    python = expression.replace(",", "").replace("^", "**").replace("x", "*")
    if not re.fullmatch(r"[\d.\s+\-*/()]+", python):
        return None
    try:
        return eval(python, {"__builtins__": {}})  # digits and operators only
    except (SyntaxError, ZeroDivisionError):
        return None


def equations_in(text):
    """Pairs of the left and the right side."""
    return EQUATION.findall(" ".join(text.split()))


def holds(left, right):
    """Whether the left side, rounded as the right side is, equals it."""
    value = value_of(left)
    decimals = len(right.partition(".")[2])
    return value is not None and abs(value - float(right.replace(",", ""))) <= 0.5000001 * 10**-decimals


def findings_in_solutions(text):
    for solution in DETAILS.findall(text):
        equations = equations_in(solution)
        for left, right in equations:
            if not holds(left, right):
                yield f"a solution computes wrongly: {left} = {right}"
        if not equations and not MARK.search(solution):
            yield f"nothing checks the solution: {' '.join(solution.split())[:60]}"


def findings_in_chapters(read, order):
    """The findings about the parts of chapters. `read` gives the text of a path; `order` lists the chapters."""
    for page, following in zip(order, [*order[1:], None]):
        text = read(f"docs/{page}") or ""
        if not QUESTION.match(text):
            yield f"docs/{page}: does not begin with its question"
        if not PREREQUISITES.search(text):
            yield f"docs/{page}: does not say which chapters it needs"
        if following and posixpath.relpath(following, posixpath.dirname(page) or ".") not in NEXT.findall(text):
            yield f"docs/{page}: has no \"Next:\" with a link to {following}"
        if not OUTPUT.search(DETAILS.sub("", text)):
            yield f"docs/{page}: has no program with its output outside of the solutions"
        missing = [heading for heading in ("Takeaways", "Exercises") if f"\n## {heading}\n" not in text]
        if page != "labs.md" and missing:
            yield f"docs/{page}: has no heading {' and no heading '.join(missing)}"
        elif page != "labs.md" and len(DETAILS.findall(text)) < 2:
            yield f"docs/{page}: has fewer than two exercises with solutions"
