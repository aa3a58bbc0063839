#!/usr/bin/env python3
"""Draws the tree of sums over ranks (kernels/tree_reduce/op.h) for 4, 6 and 8 ranks.

The sum over n ranks is the sum over the first p plus the sum over the rest; p is the largest power of two
below n.
"""
from drawing import Drawing

STEP, CELL, LEVEL, TOP = 30, 26, 40, 44


def draw(drawing, x, first, count, base):
    """Draws the sum of `count` ranks. Returns the middle and the height of its box above the ranks."""
    if count == 1:
        left = x + STEP * first
        drawing.cell(left, base, CELL, 24, first, "blue", 13)
        return left + CELL / 2, 0
    split = 1 << ((count - 1).bit_length() - 1)
    halves = [draw(drawing, x, first, split, base), draw(drawing, x, first + split, count - split, base)]
    level = max(height for _, height in halves) + 1
    middle, y = sum(place for place, _ in halves) / 2, base - LEVEL * level
    for place, height in halves:
        drawing.path([(middle, y + 22), (place, base - LEVEL * height)])
    drawing.cell(middle - CELL / 2, y, CELL, 22, "+", "dark", 15)
    return middle, level


def main():
    drawing = Drawing()
    base, x = TOP + 3 * LEVEL, 12
    for ranks in (4, 6, 8):
        drawing.text(x, 20, f"{ranks} ranks", 15, bold=True)
        draw(drawing, x, 0, ranks, base)
        x += STEP * ranks + 62
    print(drawing.svg(base + 36))


if __name__ == "__main__":
    main()
