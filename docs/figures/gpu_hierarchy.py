#!/usr/bin/env python3
"""Draws a launch and where its parts run: the grid's blocks on multiprocessors, their warps, and the memories by size.

The sizes are those of an H200: docs/kernels.md.
"""
from drawing import Drawing

LANE, TOP = 15, 40


def main():
    drawing = Drawing()
    drawing.text(10, 22, "a launch: a grid of blocks", 14, bold=True)
    for row in range(3):
        for column in range(4):
            drawing.cell(10 + 50 * column, TOP + 34 * row, 44, 28, "block", "orange" if (row, column) == (0, 1) else "light", 11)
    drawing.text(10, TOP + 120, "in any order, on any multiprocessor", 12)
    drawing.text(250, 22, "a block: warps of 32 threads", 14, bold=True)
    drawing.box(244, TOP - 6, 446, 112, "white", stroke="#c25b00", line=1.6)
    drawing.arrow(106, TOP + 10, 242, TOP + 10, "#c25b00")
    for warp in range(3):
        y = TOP + 4 + 32 * warp
        drawing.text(252, y + 16, f"warp {warp}", 12)
        for lane in range(LANE):
            x = 306 + 25 * lane
            last = lane == LANE - 1
            drawing.cell(x, y, 24, 22, "31" if last else "..." if lane == LANE - 2 else lane, "blue", 11)
    drawing.text(250, TOP + 120, "a thread's number in its warp is its lane; all lanes execute one instruction", 12)
    y = TOP + 158
    drawing.text(10, y, "memories, from near to far", 14, bold=True)
    rows = [("registers", "a thread's own: at most 255", "256 KB per multiprocessor", 60, "blue"),
            ("shared memory", "of a block, filled by the program", "227 KB per block", 120, "orange"),
            ("first-level cache", "of a multiprocessor", "256 KB, less the shared memory", 120, "green"),
            ("second-level cache", "of all blocks", "50 MB", 220, "violet"),
            ("the GPU's memory", "of all blocks; the host copies to it", "141 GB", 300, "light")]
    for index, (name, who, size, width, fill) in enumerate(rows):
        top = y + 14 + 32 * index
        drawing.box(10, top, width, 24, fill)
        drawing.text(320, top + 16, name, 13, bold=True)
        drawing.text(472, top + 9, who, 11)
        drawing.text(472, top + 23, size, 11)
    drawing.text(10, y + 14 + 32 * len(rows) + 14, "Wider bars: larger and slower. Widths are not to scale.", 12)
    print(drawing.svg(y + 14 + 32 * len(rows) + 28))


if __name__ == "__main__":
    main()
