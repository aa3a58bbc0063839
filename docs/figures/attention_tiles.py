#!/usr/bin/env python3
"""Draws which tiles of the scores causal attention computes: 512 queries and keys in tiles of 64, as
kernels/attention/cpu.cpp cuts them."""
from drawing import Drawing

TILE, COUNT, CELL, LEFT, TOP = 64, 8, 40, 90, 54


def main():
    drawing = Drawing()
    drawing.text(LEFT, 18, "keys", 14, bold=True)
    drawing.text(8, TOP + 14, "queries", 14, bold=True)
    whole = diagonal = 0
    for row in range(COUNT):
        drawing.text(LEFT - 8, TOP + CELL * row + 34, TILE * row, 12, "end")
        drawing.text(LEFT + CELL * row + 2, TOP - 6, TILE * row, 12)
        for column in range(COUNT):
            fill = "blue" if column < row else "orange" if column == row else "white"
            whole += column < row
            diagonal += column == row
            drawing.box(LEFT + CELL * column, TOP + CELL * row, CELL, CELL, fill)
    row = COUNT - 3
    y = TOP + CELL * (row + 0.5)
    drawing.arrow(LEFT + 8, y, LEFT + CELL * (row + 1) - 6, y, width=2.4)
    x = LEFT + CELL * COUNT + 30
    for line, text in enumerate(["One task has the 64 queries", "of a row, and reads the keys", "from the left (arrow).", "It keeps, for each query:", "the maximum so far,", "the sum so far, and", "the output so far."]):
        drawing.text(x, TOP + 16 + 19 * line, text, 13)
    y = TOP + 190
    for fill, text in [("blue", f"computed whole: {whole}"), ("orange", f"masked above the diagonal: {diagonal}"),
                       ("white", f"never computed: {COUNT * COUNT - whole - diagonal}")]:
        drawing.box(x, y, 16, 16, fill)
        drawing.text(x + 24, y + 13, text, 13)
        y += 26
    print(drawing.svg(TOP + CELL * COUNT + 14))


if __name__ == "__main__":
    main()
