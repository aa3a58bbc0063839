#!/usr/bin/env python3
"""Draws two machines of eight GPUs with their links: the rings of FSDP over all 16 ranks, and HSDP with a replica in each.

The bytes on the arrows are multiples of the model's size, S, as in exercise 3 of docs/hsdp.md.
"""
from drawing import Drawing

RANKS, CELL, PITCH, HEIGHT = 8, 30, 40, 26
LEFT, TOP, GAP, PANEL = 88, 56, 66, 232


def machine(drawing, number, y, ring):
    """Eight ranks and their links. The ranks of machine 1 stand from right to left in a ring over both machines."""
    numbers = list(range(RANKS * number, RANKS * (number + 1)))
    drawing.box(LEFT - 10, y - 8, PITCH * RANKS + 10, HEIGHT + 16, "light")
    drawing.text(LEFT - 18, y + 17, f"machine {number}", 12, "end")
    back = ring == "over both" and number == 1
    for place, rank in enumerate(reversed(numbers) if back else numbers):
        drawing.cell(LEFT + PITCH * place, y, CELL, HEIGHT, rank, "blue", 12)
    for place in range(RANKS - 1):
        ends = LEFT + PITCH * place + CELL, LEFT + PITCH * (place + 1)
        drawing.arrow(*[value for x in (ends[::-1] if back else ends) for value in (x, y + HEIGHT / 2)])
    if ring == "inside":  # from the last rank to the first
        outer = y - 4 if number == 0 else y + HEIGHT + 4
        near = y if number == 0 else y + HEIGHT
        first, last = LEFT + CELL / 2, LEFT + PITCH * (RANKS - 1) + CELL / 2
        drawing.path([(last, near), (last, outer), (first, outer), (first, near)])


def panel(drawing, y, title, ring, inside, between):
    drawing.text(10, y - 26, title, 14, bold=True)
    upper, lower = y, y + HEIGHT + GAP
    for number, at in enumerate((upper, lower)):
        machine(drawing, number, at, ring)
    for place in range(RANKS):
        x = LEFT + PITCH * place + CELL / 2
        if ring == "inside":
            drawing.arrow(x - 5, upper + HEIGHT, x - 5, lower, "#c25b00")
            drawing.arrow(x + 5, lower, x + 5, upper + HEIGHT, "#c25b00")
        elif place == 0:
            drawing.arrow(x, lower, x, upper + HEIGHT, "#c25b00", 1.8)
        elif place == RANKS - 1:
            drawing.arrow(x, upper + HEIGHT, x, lower, "#c25b00", 1.8)
    x = LEFT + PITCH * RANKS + 22
    for line, text in enumerate(["inside: NVLink, 450 GB/s", inside]):
        drawing.text(x, upper + 10 + 17 * line, text, 12)
    for line, text in enumerate(["between: network, 50 GB/s", *between]):
        drawing.text(x, (upper + lower + HEIGHT) / 2 - 2 + 17 * line, text, 12, fill="#8a4100", bold=line == 0)


def main():
    drawing = Drawing()
    sends = 3 * 15 / 16
    panel(drawing, TOP, "FSDP on 16 ranks: every ring passes through both machines", "over both",
          f"a rank sends {sends:g} S", [f"one rank sends {sends:g} S:", "all gathers and all sums"])
    within, across = 3 * 7 / 8, 1 / 8
    panel(drawing, TOP + PANEL, "HSDP, two replicas of 8 ranks: only sums cross", "inside",
          f"a rank sends {within:g} S", [f"each rank sends {across:g} S:", "sums of an eighth of the gradients"])
    print(drawing.svg(TOP + PANEL + 2 * HEIGHT + GAP + 14))


if __name__ == "__main__":
    main()
