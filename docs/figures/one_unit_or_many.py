#!/usr/bin/env python3
"""Draws a forward pass of FSDP with the whole model as one unit, and with a unit for each block: time and memory."""
from drawing import Drawing

BLOCKS, COMPUTE, GATHER = 6, 4.0, 3.0  # times of a block
LEFT, TOP, BAR = 120, 64, 24
SCALE = 12.4  # pixels of a unit of time


def lane(drawing, y, title, boxes):
    drawing.text(LEFT - 10, y + 17, title, 13, "end")
    for begin, length, text, fill in boxes:
        drawing.cell(LEFT + SCALE * begin, y, SCALE * length, BAR, text, fill, 12)


def main():
    drawing = Drawing()
    drawing.legend(18, [("orange", "gather"), ("blue", "forward"), ("green", "gathered values in memory")])
    drawing.text(10, TOP - 10, "one unit, the whole model", 14, bold=True)
    wait = BLOCKS * GATHER
    lane(drawing, TOP, "communication", [(0, wait, "all blocks", "orange")])
    lane(drawing, TOP + 30, "compute", [(wait + i * COMPUTE, COMPUTE, f"{i}", "blue") for i in range(BLOCKS)])
    one = wait + BLOCKS * COMPUTE
    drawing.text(LEFT - 10, TOP + 77, "memory", 13, "end")
    drawing.box(LEFT, TOP + 60, SCALE * one, 36, "green")
    drawing.text(LEFT + 8, TOP + 83, f"{BLOCKS} blocks gathered: as much as without sharding", 12)
    second = TOP + 142
    drawing.text(10, second - 10, "a unit for each block, two slots", 14, bold=True)
    lane(drawing, second, "communication", [(max(0, GATHER + (i - 1) * COMPUTE) if i else 0, GATHER, f"{i}", "orange")
                                            for i in range(BLOCKS)])
    lane(drawing, second + 30, "compute", [(GATHER + i * COMPUTE, COMPUTE, f"{i}", "blue") for i in range(BLOCKS)])
    many = GATHER + BLOCKS * COMPUTE
    drawing.text(LEFT - 10, second + 77, "memory", 13, "end")
    drawing.box(LEFT, second + 84, SCALE * many, 12, "green")
    drawing.text(LEFT + 8, second + 79, "2 blocks gathered, for any number of blocks", 12)
    for x, y in ((one, TOP), (many, second)):
        drawing.path([(LEFT + SCALE * x, y - 4), (LEFT + SCALE * x, y + 96)], "#222222", 1.4, dash="4 3")
    drawing.text(LEFT + SCALE * many + 6, second + 46, f"{100 * (1 - many / one):.0f} % sooner", 12)
    print(drawing.svg(second + 112))


if __name__ == "__main__":
    main()
