#!/usr/bin/env python3
"""Draws a product with tiles in shared memory: a block copies a tile of a and one of b, and every element is used by a
whole row or column of threads. The side of a tile is read from the rung."""
import re
from pathlib import Path

from drawing import Drawing

SOURCE = Path(__file__).parents[2] / "examples/kernel_ladder/matmul/gpu_2_shared_tiles.cu"
CELL, TILES, SIDE = 13, 4, 4  # of an element as drawn; tiles along a side; elements of a tile as drawn
A, B, TOP = (48, 262), (232, 48), 262


def grid(drawing, x, y, fill_of):
    for row in range(TILES * SIDE):
        for column in range(TILES * SIDE):
            drawing.box(x + CELL * column, y + CELL * row - 10, CELL, CELL, fill_of(row, column), "#bbbbbb", 0.5)
    size = CELL * TILES * SIDE
    for tile in range(TILES + 1):
        at = CELL * SIDE * tile
        drawing.path([(x + at, y - 10), (x + at, y - 10 + size)], "#444444", 1.1)
        drawing.path([(x, y - 10 + at), (x + size, y - 10 + at)], "#444444", 1.1)


def main():
    side = int(re.search(r"kSide = (\d+)", SOURCE.read_text("utf-8"))[1])
    drawing = Drawing()
    size = CELL * TILES * SIDE
    left, x, step = 20, 20 + size + 30, 1
    tile = lambda index: index // SIDE  # noqa: E731
    upper, lower = 44, 44 + size + 40
    grid(drawing, x, upper, lambda r, c: "orange" if (tile(r), tile(c)) == (step, 2) else "yellow" if tile(c) == 2 else "white")
    grid(drawing, left, lower, lambda r, c: "green" if (tile(r), tile(c)) == (1, step) else "yellow" if tile(r) == 1 else "white")
    grid(drawing, x, lower, lambda r, c: "blue" if (tile(r), tile(c)) == (1, 2) else "white")
    for text, at, y in [("b", x + size / 2, upper), ("a", left + size / 2, lower), ("c", x + size / 2, lower)]:
        drawing.text(at, y - 18, text, 15, "middle", bold=True)
    for line, text in enumerate(["A block has a tile of c, one thread", "for each element (blue)."]):
        drawing.text(left, upper + 20 + 18 * line, text, 13)
    for line, text in enumerate(["It goes over the yellow strips in", f"steps of {side}. In each step it", "copies one tile of a (green) and", "one of b (orange)."]):
        drawing.text(left, upper + 68 + 18 * line, text, 13)
    for line, text in enumerate(["Shared memory:", f"2 x {side} x {side} x 4 bytes", f"= {2 * side * side * 4:,} bytes", "", "Each element is read", "from memory once per", f"block, and used {side}", "times."]):
        drawing.text(x + size + 20, lower + 20 + 18 * line, text, 13, bold=line == 0)
    y = drawing.legend(lower + size + 14, [("green", "tile of a, in shared memory"), ("orange", "tile of b, in shared memory"), ("yellow", "other steps"), ("blue", "sums, in registers")], left)
    print(drawing.svg(y + 2))


if __name__ == "__main__":
    main()
