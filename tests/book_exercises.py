"""Checks the solutions of the book's exercises.

A solution is the text of a <details>. Its equations are computed again: those whose left side has numbers
and operators only, with at least one operator, and whose right side is a number. "x" multiplies, "/"
divides, "^" takes a power, and commas group digits. The right side may be rounded.

Every chapter of the book (the parts of docs/README.md) has headings "Takeaways" and "Exercises", and at least
two solutions. docs/labs.md has labs in their place.
"""
import re

DETAILS = re.compile(r"<details>(.*?)</details>", re.S)
MARK = re.compile(r"<!-- (?:from|program|printed by|lines of|in words)\b")
NUMBER = r"\d[\d,]*(?:\.\d+)?"
EQUATION = re.compile(rf"(?<![\w.])((?:\(\s*)*{NUMBER}(?:[\s()]*(?:[-+/^]|\bx\b)[\s()]*{NUMBER})+(?:\s*\))*)"
                      rf"\s*=\s*({NUMBER})")


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
    for page in order:
        text = read(f"docs/{page}") or ""
        missing = [heading for heading in ("Takeaways", "Exercises") if f"\n## {heading}\n" not in text]
        if page != "labs.md" and missing:
            yield f"docs/{page}: has no heading {' and no heading '.join(missing)}"
        elif page != "labs.md" and len(DETAILS.findall(text)) < 2:
            yield f"docs/{page}: has fewer than two exercises with solutions"
