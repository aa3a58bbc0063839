#!/usr/bin/env python3
"""Draws every collective element by element, from the output of build/bin/collectives."""
import re
import sys

from drawing import Drawing

CELL, HEIGHT, PANEL = 33, 26, 158
FILLS = ["yellow", "light", "blue", "grey"]  # by the rank that a number comes from


def read(lines):
    """[(name, [(before, after)])]: the numbers are texts, "." where memory is not defined."""
    examples = []
    for line in lines:
        rank = re.match(r"  rank \d+ (.*)->(.*?)sent", line)
        if rank:
            examples[-1][1].append((rank[1].split(), rank[2].split()))
        elif line.strip():
            examples.append((line.strip(), []))
    return examples


def draw_row(drawing, x, y, row, sums):
    for place, number in enumerate(row):
        if number == ".":
            drawing.cell(x + CELL * place, y, CELL, HEIGHT, "", "white")
        else:
            fill = "dark" if sums else FILLS[int(number) // 10]
            drawing.cell(x + CELL * place, y, CELL, HEIGHT, number, fill, 14)


def main():
    drawing = Drawing()
    examples = read(sys.stdin)
    for index, (name, ranks) in enumerate(examples):
        left, top = 8 + 350 * (index % 2), 10 + PANEL * (index // 2)
        drawing.text(left, top + 14, name.replace("_", "-") + (" (root: rank 1)" if name in ("broadcast", "reduce")
                                                                else ""), 15, bold=True)
        for rank, (before, after) in enumerate(ranks):
            y = top + 26 + (HEIGHT + 2) * rank
            drawing.text(left, y + 18, f"rank {rank}", 12)
            draw_row(drawing, left + 44, y, before, False)
            drawing.arrow(left + 180, y + HEIGHT / 2, left + 198, y + HEIGHT / 2)
            draw_row(drawing, left + 202, y, after, "reduce" in name)
    bottom = 10 + PANEL * ((len(examples) + 1) // 2)
    drawing.legend(bottom + 10, [(fill, f"from rank {rank}") for rank, fill in enumerate(FILLS)] + [("dark", "a sum over all ranks")])
    print(drawing.svg(bottom + 26))


if __name__ == "__main__":
    main()
