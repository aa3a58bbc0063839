#!/usr/bin/env python3
"""Draws a ring of two stages: when a producer fills them, when a consumer reads them, and which barrier each waits for."""
from drawing import Drawing

TILES, COPY, USE, STAGES = 5, 52, 76, 2
LEFT, TOP, LANE, GAP = 92, 66, 30, 16
FILLS = ["orange", "violet"]


def main():
    drawing = Drawing()
    copies, uses, free, released = [], [], 0, [0] * STAGES
    for tile in range(TILES):
        begin = max(free, released[tile % STAGES])
        copies.append((begin, begin + COPY))
        free = begin + COPY
        use = max(begin + COPY, uses[-1][1] if uses else 0)
        uses.append((use, use + USE))
        released[tile % STAGES] = use + USE
    lanes = {name: TOP + (LANE + GAP) * index for index, name in enumerate(["producer", "stage 0", "stage 1", "consumer"])}
    for name, y in lanes.items():
        drawing.text(LEFT - 10, y + 20, name, 13, "end")
        drawing.path([(LEFT, y + LANE), (LEFT + 560, y + LANE)], "#cccccc", 0.8)
    for tile, ((begin, copied), (use, ends)) in enumerate(zip(copies, uses)):
        y = lanes[f"stage {tile % STAGES}"]
        drawing.path([(LEFT + copied, lanes["producer"] + LANE), (LEFT + copied, y)], "#2e7d32", 1.8)
        drawing.path([(LEFT + use + 3, y + LANE), (LEFT + use + 3, lanes["consumer"])], "#2e7d32", 1.8)
        following = tile + STAGES
        if following < TILES and copies[following][0] == ends:
            drawing.path([(LEFT + ends - 3, lanes["consumer"]), (LEFT + ends - 3, lanes["producer"] + LANE)], "#b71c1c", 1.8, dash="4 3")
    for tile, ((begin, copied), (use, ends)) in enumerate(zip(copies, uses)):
        drawing.cell(LEFT + begin, lanes["producer"], COPY, LANE, f"copy {tile}", "light", 12)
        drawing.cell(LEFT + use, lanes["consumer"], USE, LANE, f"multiply {tile}", "blue", 12)
        y = lanes[f"stage {tile % STAGES}"]
        drawing.box(LEFT + begin, y, copied - begin, LANE, "white")
        drawing.cell(LEFT + copied, y, ends - copied, LANE, f"tile {tile}", FILLS[tile % STAGES], 12)
    drawing.path([(LEFT, 24), (LEFT + 26, 24)], "#2e7d32", 2)
    drawing.text(LEFT + 34, 28, "full: the bytes have arrived", 12)
    drawing.path([(LEFT + 250, 24), (LEFT + 276, 24)], "#b71c1c", 2, dash="4 3")
    drawing.text(LEFT + 284, 28, "empty: the consumer has read the stage", 12)
    drawing.text(LEFT, 48, f"Tile i is in stage i mod {STAGES}. While tile i is multiplied, tile i + 1 is copied.", 12)
    print(drawing.svg(lanes["consumer"] + LANE + 16))


if __name__ == "__main__":
    main()
