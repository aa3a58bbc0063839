#!/usr/bin/env python3
"""Draws the blocks of a matrix product: which part of a, b and c is in which memory. The sizes are those of
examples/kernel_ladder/matmul/8_threads.cpp. Sides are not to scale."""
import re
from pathlib import Path

from drawing import Drawing

SOURCE = Path(__file__).parents[2] / "examples/kernel_ladder/matmul/8_threads.cpp"
A, C, WIDTH, HEIGHT = 30, 290, 200, 190  # left sides of a, and of b and c; width of a; height of c
B_TOP, C_TOP = 32, 252
B_WIDTH, B_HEIGHT = 380, 170
BLOCK = (60, 72)  # the depths of a block: from the upper side of b, and from the left side of a
PANELS, PANEL, IN_USE = 10, 28, 4  # as drawn: panels of a block, a panel's width, the panel in use
TASK, TILE = (56, 68), (84, 14)  # rows of a task and of a tile: from the upper side of c, and how many


def sizes():
    """The constants of the rung."""
    return {name: int(value) for name, value in re.findall(r"\b(k\w+) = (\d+)[,;]", SOURCE.read_text("utf-8"))}


def main():
    size = sizes()
    drawing = Drawing()
    drawing.box(C, B_TOP, B_WIDTH, B_HEIGHT)
    for panel in range(PANELS):
        fill = "violet" if panel == IN_USE else "blue"
        drawing.box(C + PANEL * panel, B_TOP + BLOCK[0], PANEL, BLOCK[1], fill)
    drawing.text(C + B_WIDTH / 2, B_TOP - 10, "b", 15, "middle", bold=True)
    for line, text in enumerate(["a block:", f"{size['kDepth']} deep,", f"{size['kBlockColumns']} columns"]):
        drawing.text(C + PANEL * PANELS + 6, B_TOP + BLOCK[0] + 22 + 18 * line, text, 12)
    panel_x = C + PANEL * (IN_USE + 0.5)
    drawing.text(panel_x, B_TOP + BLOCK[0] - 8, f"a panel: {size['kColumns']} columns", 13, "middle")

    drawing.box(A, C_TOP, WIDTH, HEIGHT)
    drawing.box(A, C_TOP + TASK[0], WIDTH, TASK[1], "light")
    drawing.box(A + BLOCK[0], C_TOP + TILE[0], BLOCK[1], TILE[1], "green")
    drawing.text(A + WIDTH / 2, C_TOP - 10, "a", 15, "middle", bold=True)
    drawing.text(A + 4, C_TOP + TILE[0] - 8, f"{size['kRows']} rows, {size['kDepth']} deep", 13)
    drawing.text(A + 4, C_TOP + sum(TASK) + 18, f"a thread's {size['kTaskRows']} rows", 13)

    drawing.box(C, C_TOP, B_WIDTH, HEIGHT)
    drawing.box(C, C_TOP + TASK[0], B_WIDTH, TASK[1], "light")
    drawing.box(panel_x - PANEL / 2, C_TOP + TILE[0], PANEL, TILE[1], "orange")
    drawing.text(C + B_WIDTH / 2, C_TOP - 10, "c", 15, "middle", bold=True)
    drawing.text(panel_x + PANEL / 2 + 8, C_TOP + TILE[0] + 12,
                 f"a tile: {size['kRows']} x {size['kColumns']}", 13)
    drawing.arrow(panel_x, B_TOP + sum(BLOCK) + 4, panel_x, C_TOP + TILE[0] - 4)
    drawing.arrow(A + sum(BLOCK) + 4, C_TOP + TILE[0] + TILE[1] / 2, panel_x - PANEL / 2 - 4,
                  C_TOP + TILE[0] + TILE[1] / 2)

    y = C_TOP + HEIGHT + 30
    y = drawing.legend(y, [("orange", "in registers"), ("green", "stays in the first-level cache"),
                           ("violet", "passes through the first-level cache"),
                           ("blue", "packed, stays in the second-level cache"), ("white", "memory")])
    print(drawing.svg(y + 4))


if __name__ == "__main__":
    main()
