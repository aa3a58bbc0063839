#!/usr/bin/env python3
"""Draws the rounds of a ring all-reduce, from the output of build/bin/ring."""
import re
import sys

from drawing import Drawing

CELL, HEIGHT, PANEL = 32, 26, 172


def read(lines):
    """[(title, rows)]: a number in brackets still misses ranks."""
    rounds = []
    for line in lines:
        rank = re.match(r"  rank \d+ (.*)", line)
        if rank:
            rounds[-1][1].append(rank[1].split())
        elif not line.startswith("each rank"):
            rounds.append((line.strip(), []))
    return rounds


def main():
    drawing = Drawing()
    previous = None
    for index, (title, rows) in enumerate(read(sys.stdin)):
        left, top = 46 + 163 * (index % 4), 8 + PANEL * (index // 4)
        name, _, half = title.partition(", ")
        drawing.text(left, top + 14, name, 14, bold=True)
        drawing.text(left, top + 30, half, 12)
        for rank, row in enumerate(rows):
            y = top + 40 + HEIGHT * rank
            if index % 4 == 0:
                drawing.text(left - 42, y + 18, f"rank {rank}", 12)
            for part, number in enumerate(row):
                changed = previous is not None and number != previous[rank][part]
                fill = "light" if "[" in number else "dark"
                drawing.cell(left + CELL * part, y, CELL, HEIGHT, number.strip("[]"), fill)
                if changed:
                    drawing.path([(left + CELL * part + 2, y + 2), (left + CELL * (part + 1) - 2, y + 2),
                                  (left + CELL * (part + 1) - 2, y + HEIGHT - 2), (left + CELL * part + 2, y + HEIGHT - 2),
                                  (left + CELL * part + 2, y + 2)], "#d07000", 2.4)
        previous = rows
    x, y = 46 + 163 * 3, 8 + PANEL
    for line, fill in enumerate(["light", "dark"]):
        drawing.box(x, y + 44 + 26 * line, 16, 16, fill)
        drawing.text(x + 22, y + 57 + 26 * line, ["some ranks added", "all ranks added"][line], 12)
    drawing.path([(x, y + 98), (x + 16, y + 98), (x + 16, y + 114), (x, y + 114), (x, y + 98)], "#d07000", 2.4)
    drawing.text(x + 22, y + 111, "has just arrived", 12)
    print(drawing.svg(8 + 2 * PANEL))


if __name__ == "__main__":
    main()
