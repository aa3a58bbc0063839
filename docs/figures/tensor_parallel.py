#!/usr/bin/env python3
"""Draws a feed-forward layer cut over two ranks by tensor parallelism: the first matrix by its results, the second by its
inputs, and the sum at the end."""
from drawing import Drawing

FILLS = ["blue", "orange"]
TOP, PITCH = 66, 140


def main():
    drawing = Drawing()
    for x, title in [(66, "x, all tokens"), (194, "up"), (306, "hidden"), (414, "down"), (532, "a summand")]:
        drawing.text(x, 24, title, 13, "middle", bold=True)
    drawing.text(194, 42, "cut by results", 12, "middle")
    drawing.text(414, 42, "cut by inputs", 12, "middle")
    for rank, fill in enumerate(FILLS):
        y = TOP + PITCH * rank
        drawing.text(8, y + 46, f"rank {rank}", 12)
        drawing.box(48, y + 20, 40, 64, "light")
        drawing.text(108, y + 56, "x", 15, "middle")
        for part in range(2):  # up: columns are results
            drawing.box(154 + 40 * part, y + 32, 40, 40, fill if part == rank else "white")
        drawing.text(252, y + 56, "=", 15, "middle")
        for part in range(2):
            drawing.box(266 + 40 * part, y + 20, 40, 64, fill if part == rank else "white")
        drawing.text(366, y + 56, "x", 15, "middle")
        for part in range(2):  # down: rows are inputs
            drawing.box(394, y + 12 + 40 * part, 40, 40, fill if part == rank else "white")
        drawing.text(476, y + 56, "=", 15, "middle")
        drawing.box(512, y + 20, 40, 64, fill)
    drawing.path([(566, TOP + 52), (590, TOP + 52), (590, TOP + PITCH + 52), (566, TOP + PITCH + 52)])
    drawing.arrow(590, TOP + PITCH / 2 + 52, 618, TOP + PITCH / 2 + 52)
    drawing.box(622, TOP + PITCH / 2 + 20, 40, 64, "green")
    drawing.text(642, TOP + PITCH / 2 + 104, "all-reduce:", 12, "middle")
    drawing.text(642, TOP + PITCH / 2 + 120, "n C numbers", 12, "middle")
    y = TOP + 2 * PITCH - 10
    drawing.legend(y, [("light", "on both ranks"), ("blue", "of rank 0"), ("orange", "of rank 1"), ("white", "not there"), ("green", "the sum, on both")])
    print(drawing.svg(y + 18))


if __name__ == "__main__":
    main()
