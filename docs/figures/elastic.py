#!/usr/bin/env python3
"""Draws the tree that train.elastic: 8 sums gradients in, and which ranks add on two and on four ranks."""
from drawing import Drawing

LEAVES, STEP, CELL, LEVEL = 8, 48, 36, 50
LEFT, TOP = 24, 50


def main():
    drawing = Drawing()
    base = TOP + 3 * LEVEL
    places = [LEFT + STEP * leaf + CELL / 2 for leaf in range(LEAVES)]
    for leaf, x in enumerate(places):
        drawing.text(x, base + 16, f"{leaf}", 13, "middle")
    names = [f"{leaf}" for leaf in range(LEAVES)]
    nodes, where = list(zip(places, names)), []
    for level in range(1, 4):
        y, merged = base - LEVEL * level, []
        for (a, first), (b, last) in zip(nodes[::2], nodes[1::2]):
            x = (a + b) / 2
            below = y + LEVEL if level > 1 else base
            drawing.path([(a, below), (x, y + 24), (b, below)])
            name = f"{first.split('..')[0]}..{last.split('..')[-1]}"
            drawing.cell(x - 26, y, 52, 24, name, "yellow", 13)
            merged.append((x, name))
        nodes, where = merged, where + [y]
    for row, (title, ranks) in enumerate([("2 ranks", 2), ("4 ranks", 4)]):
        y = base + 28 + 34 * row
        for leaf, x in enumerate(places):
            fill = ["blue", "orange", "green", "violet"][leaf % ranks]
            drawing.cell(x - CELL / 2, y, CELL, 26, f"r{leaf % ranks}", fill, 12)
        drawing.text(LEFT + STEP * LEAVES + 4, y + 18, f"on {title}", 13)
    drawing.text(430, 24, "2 ranks", 13, bold=True)
    drawing.text(566, 24, "4 ranks", 13, bold=True)
    for y, two, four in zip(where, ["over ranks", "on each rank", "on each rank"], ["over ranks", "over ranks", "on each rank"]):
        for x, text in ((430, two), (566, four)):
            drawing.cell(x, y, 116, 24, text, "light" if text == "over ranks" else "white", 12)
    drawing.text(LEFT, base + 116, "Leaf i N + r is micro-batch i of rank r. The tree is the same for every number of ranks, and so are the bits.", 12)
    print(drawing.svg(base + 130))


if __name__ == "__main__":
    main()
