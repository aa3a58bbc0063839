#!/usr/bin/env python3
"""Draws the rows of a matrix and of a vector over four ranks: each owns a quarter, and an all-gather fills in the others."""
from drawing import Drawing

RANKS, ROWS, COLUMNS, CELL = 4, 8, 5, 17
FILLS = ["blue", "orange", "green", "violet"]
TOP = 58


def matrix(drawing, x, y, columns, fill_of):
    for row in range(ROWS):
        for column in range(columns):
            drawing.box(x + CELL * column, y + CELL * row, CELL, CELL, fill_of(row))


def main():
    drawing = Drawing()
    owner = lambda row: row * RANKS // ROWS  # noqa: E731
    drawing.text(52, 20, "a weight and a bias", 14, bold=True)
    matrix(drawing, 52, TOP, COLUMNS, lambda row: FILLS[owner(row)])
    matrix(drawing, 52 + CELL * (COLUMNS + 1), TOP, 1, lambda row: FILLS[owner(row)])
    for rank in range(RANKS):
        drawing.text(46, TOP + CELL * (2 * rank + 1) + 5, f"rank {rank}", 11, "end")
    drawing.arrow(180, TOP + 68, 218, TOP + 68)
    drawing.text(199, TOP + 58, "owns", 12, "middle")
    drawing.text(232, 20, "2 rows on each rank", 14, bold=True)
    for rank in range(RANKS):
        x, y = 232, TOP + rank * 44 - 16
        drawing.text(x, y + 12, f"rank {rank}", 12)
        for row in range(2):
            for column in range(COLUMNS):
                drawing.box(x + 50 + CELL * column, y + CELL * row, CELL, CELL, FILLS[rank])
            drawing.box(x + 50 + CELL * (COLUMNS + 1), y + CELL * row, CELL, CELL, FILLS[rank])
    drawing.arrow(414, TOP + 68, 458, TOP + 68)
    drawing.text(436, TOP + 58, "all-gather", 12, "middle")
    drawing.text(476, 20, "the slot of every rank", 14, bold=True)
    matrix(drawing, 476, TOP, COLUMNS, lambda row: FILLS[owner(row)])
    matrix(drawing, 476 + CELL * (COLUMNS + 1), TOP, 1, lambda row: FILLS[owner(row)])
    drawing.text(606, TOP + 60, "released", 12)
    drawing.text(606, TOP + 76, "after use", 12)
    print(drawing.svg(TOP + CELL * ROWS + 22))


if __name__ == "__main__":
    main()
