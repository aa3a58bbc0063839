#!/usr/bin/env python3
"""Draws the memory and the traffic of one rank under every strategy, from the output of tessera plan."""
import re
import sys

from drawing import Drawing

CATEGORIES = [("parameters", "dark"), ("gradients", "orange"), ("optimizer", "blue"), ("slots", "green"),
              ("activations, workspace", "light")]
LEFT, TOP, HEIGHT, GAP = 92, 62, 26, 14
ROOM = 80.0  # GiB of a GPU
MEMORY, TRAFFIC, SPACE = 372, 120, 70  # widths in pixels


def read(text):
    """[(strategy, bytes by category, sent)] of the table of all strategies, and its unit."""
    table = re.search(r"Every strategy, the rank with the most, in (\w+):\n\n.*\n((?:  \S.*\n)+)", text)
    rows = []
    for line in table[2].splitlines():
        name, numbers = re.match(r"  (\S+(?: \d+ x \d+)?) +(.*)", line).groups()
        *parts, total, peak, sent = map(float, numbers.split())
        rows.append((name, parts + [peak - sum(parts)], sent))
    return rows, table[1]


def main():
    rows, unit = read(sys.stdin.read())
    drawing = Drawing()
    drawing.legend(18, [(fill, name) for name, fill in CATEGORIES])
    most = max(sum(parts) for _, parts, _ in rows)
    scale, sent_scale = MEMORY / most, TRAFFIC / max(sent for *_, sent in rows)
    right = LEFT + MEMORY + SPACE
    drawing.text(LEFT, TOP - 12, f"memory of a rank at the peak of a step, {unit}", 13, bold=True)
    drawing.text(right, TOP - 12, f"sent in a step, {unit}", 13, bold=True)
    for index, (name, parts, sent) in enumerate(rows):
        y, x = TOP + (HEIGHT + GAP) * index, LEFT
        drawing.text(LEFT - 8, y + 18, name, 13, "end")
        for (_, fill), part in zip(CATEGORIES, parts):
            if part > 0:
                drawing.box(x, y, scale * part, HEIGHT, fill)
            x += scale * part
        drawing.text(x + 6, y + 18, f"{sum(parts):.1f}", 13)
        drawing.box(right, y, sent_scale * sent, HEIGHT, "grey")
        drawing.text(right + 6, y + 18, f"{sent:.1f}", 13)
    bottom = TOP + (HEIGHT + GAP) * len(rows)
    edge = LEFT + scale * ROOM
    drawing.path([(edge, TOP - 6), (edge, bottom - 6)], width=1.6, dash="5 3")
    drawing.text(edge + 6, bottom - 8, "80 GiB", 12)
    print(drawing.svg(bottom))


if __name__ == "__main__":
    main()
