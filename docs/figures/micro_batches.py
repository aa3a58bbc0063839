#!/usr/bin/env python3
"""Draws a step of three micro-batches with both values of sharding.reduce: where sums over ranks are formed, and the
memory of a rank's gradients."""
from drawing import Drawing

BATCHES, FORWARD, BACKWARD, UNITS = 3, 40, 88, 4
LEFT, TOP, LANE, PITCH, PANEL = 108, 58, 24, 30, 178
WHOLE, OWN, SLOTS = 44, 11, 22  # heights: all gradients, a quarter of them on 4 ranks, two slots


def panel(drawing, y, title, every):
    drawing.text(10, y - 16, title, 14, bold=True)
    for lane, name in enumerate(["compute", "reductions", "gradients"]):
        drawing.text(LEFT - 10, y + PITCH * lane + 17 + (WHOLE - 20 if lane == 2 else 0), name, 12, "end")
    x, ground = LEFT, y + 2 * PITCH + WHOLE + 8
    levels = [(LEFT, OWN if every else WHOLE)]
    for batch in range(BATCHES):
        drawing.cell(x, y, FORWARD, LANE, f"F{batch}", "light", 12)
        for unit in range(UNITS):
            width = BACKWARD / UNITS
            left = x + FORWARD + width * unit
            drawing.box(left, y, width, LANE, "blue")
            if every or batch == BATCHES - 1:
                drawing.box(left + width * 0.9, y + PITCH, width * 0.8, LANE, "orange")
        drawing.text(x + FORWARD + BACKWARD / UNITS / 2, y + 17, f"B{batch}", 12, "middle")
        if every:
            levels += [(x + FORWARD, OWN), (x + FORWARD, OWN + SLOTS), (x + FORWARD + BACKWARD + 16, OWN + SLOTS),
                       (x + FORWARD + BACKWARD + 16, OWN)]
        x += FORWARD + BACKWARD
    if not every:
        levels += [(x - BACKWARD, WHOLE), (x - BACKWARD, WHOLE + OWN), (x + 16, WHOLE + OWN), (x + 16, OWN)]
    levels = [(at, height * WHOLE / (WHOLE + OWN)) for at, height in levels]
    drawing.cell(x + 20, y, 62, LANE, "update", "green", 12)
    levels += [(x + 82, levels[-1][1])]
    drawing.area([(LEFT, ground), *((at, ground - height) for at, height in levels), (x + 82, ground)], "yellow")
    drawing.path([(LEFT, ground), (x + 92, ground)])
    for line, text in enumerate(["12 reductions,", "gradients in slots"] if every else ["4 reductions,", "whole gradients"]):
        drawing.text(x + 98, ground - 28 + 16 * line, text, 12)


def main():
    drawing = Drawing()
    panel(drawing, TOP - 16, "every_micro_batch: sums over ranks, then over micro-batches", True)
    panel(drawing, TOP - 16 + PANEL, "last_micro_batch: sums over micro-batches, then over ranks", False)
    y = drawing.legend(TOP + 2 * PANEL - 30, [("light", "forward"), ("blue", "backward of a unit"), ("orange", "reduce-scatter"),
                                              ("green", "update"), ("yellow", "bytes of gradients")])
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
