#!/usr/bin/env python3
"""Draws a mesh of replicas and shards, of the size that tessera plan prints for hsdp."""
import re
import sys

from drawing import Drawing

LEFT, TOP, WIDTH, HEIGHT, GAP_X, GAP_Y = 130, 66, 84, 58, 48, 84


def main():
    replicas, shards = map(int, re.search(r"mesh +replica (\d+) x shard (\d+)", sys.stdin.read()).groups())
    drawing = Drawing()
    drawing.text(LEFT, 20, "axis shard: all-gather and reduce-scatter, within a machine", 14, bold=True)
    drawing.arrow(LEFT, 32, LEFT + shards * (WIDTH + GAP_X) - GAP_X, 32)
    fills = ["white", "blue", "grey", "dark"]
    for replica in range(replicas):
        y = TOP + (HEIGHT + GAP_Y) * replica
        drawing.box(LEFT - 14, y - 14, shards * (WIDTH + GAP_X) - GAP_X + 28, HEIGHT + 28, "light", "#888888")
        drawing.text(8, y + 26, f"replica {replica}", 14, bold=True)
        drawing.text(8, y + 44, "the whole model", 12)
        for shard in range(shards):
            x = LEFT + (WIDTH + GAP_X) * shard
            fill = fills[shard % len(fills)]
            drawing.box(x, y, WIDTH, HEIGHT, fill)
            ink = "#ffffff" if fill == "dark" else "#222222"
            drawing.text(x + WIDTH / 2, y + 25, f"rank {replica * shards + shard}", 14, "middle", fill=ink)
            drawing.text(x + WIDTH / 2, y + 45, f"part {shard} of {shards}", 12, "middle", fill=ink)
            if shard + 1 < shards:
                drawing.arrow(x + WIDTH + 4, y + HEIGHT / 2 - 6, x + WIDTH + GAP_X - 4, y + HEIGHT / 2 - 6)
                drawing.arrow(x + WIDTH + GAP_X - 4, y + HEIGHT / 2 + 6, x + WIDTH + 4, y + HEIGHT / 2 + 6)
            if replica + 1 < replicas:
                drawing.arrow(x + WIDTH / 2 - 6, y + HEIGHT + 18, x + WIDTH / 2 - 6, y + HEIGHT + GAP_Y - 18)
                drawing.arrow(x + WIDTH / 2 + 6, y + HEIGHT + GAP_Y - 18, x + WIDTH / 2 + 6, y + HEIGHT + 18)
    drawing.text(8, TOP + HEIGHT + GAP_Y / 2 - 6, "axis replica:", 13, bold=True)
    drawing.text(8, TOP + HEIGHT + GAP_Y / 2 + 12, "all-reduce of a part", 12)
    print(drawing.svg(TOP + (HEIGHT + GAP_Y) * replicas - GAP_Y + 24))


if __name__ == "__main__":
    main()
