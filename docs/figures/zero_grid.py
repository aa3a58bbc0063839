#!/usr/bin/env python3
"""Draws the 16 bytes of a parameter on each of four ranks, and the stage of ZeRO that divides them among the ranks."""
from drawing import Drawing

RANKS = 4
# The bytes of a parameter in f32: their name, the fill, the bytes, and the stages by which they are divided.
STATE = [("values", "dark", 4, ("ZeRO-3",)), ("gradients", "orange", 4, ("ZeRO-2", "ZeRO-3")),
         ("moments", "blue", 8, ("ZeRO-1", "ZeRO-2", "ZeRO-3"))]
STAGES = ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"]
LEFT, TOP, HEIGHT, PITCH, GAP = 84, 60, 20, 22, 24
PANEL, BYTE = 140, 6.5  # width of a stage and of a byte in pixels


def main():
    drawing = Drawing()
    drawing.legend(18, [(fill, f"{name}, {size} bytes") for name, fill, size, _ in STATE] + [("white", "on other ranks")])
    for column, stage in enumerate(STAGES):
        left = LEFT + column * (PANEL + 12)
        drawing.text(left, TOP - 10, stage, 14, bold=True)
        held = sum(size / RANKS if stage in stages else size for _, _, size, stages in STATE)
        for rank in range(RANKS):
            y, x = TOP + rank * PITCH, left
            if column == 0:
                drawing.text(LEFT - 8, y + 15, f"rank {rank}", 13, "end")
            for _, fill, size, stages in STATE:
                width = BYTE * size
                drawing.box(x, y, width, HEIGHT, "white")
                part = width / RANKS if stage in stages else width
                drawing.box(x + (rank * part if stage in stages else 0), y, part, HEIGHT, fill)
                x += width
        drawing.text(left, TOP + RANKS * PITCH + 18, f"{held:g} bytes a rank", 13)
    print(drawing.svg(TOP + RANKS * PITCH + 34))


if __name__ == "__main__":
    main()
