#!/usr/bin/env python3
"""Draws what crosses the link between a GPU and its host in a step with sharding.offload, in bytes per owned element."""
from drawing import Drawing

LANES = [("GPU", 96), ("link", 166), ("host", 236)]
LEFT, HEIGHT = 96, 40
# Boxes: lane, begin, width, text, fill.
BOXES = [("GPU", 0, 150, "forward", "light"), ("GPU", 150, 190, "backward", "blue"),
         ("host", 386, 100, "AdamW", "green"), ("GPU", 486, 100, "forward", "light")]
DOWN, UP = [178, 226, 274, 322], [440, 468, 496, 524]


def main():
    drawing = Drawing()
    y = dict(LANES)
    drawing.text(LEFT, 24, "sharding.offload: moments, masters and own values stay on the host", 14, bold=True)
    drawing.path([(LEFT + 486, 60), (LEFT + 486, 300)], "#999999", 1, dash="3 3")
    drawing.text(LEFT + 490, 58, "next step", 12)
    for name, top in LANES:
        drawing.text(LEFT - 10, top + HEIGHT / 2 + 4, name, 13, "end", bold=True)
        drawing.path([(LEFT, top + HEIGHT), (LEFT + 592, top + HEIGHT)], "#cccccc", 0.8)
    for lane, begin, width, text, fill in BOXES:
        drawing.cell(LEFT + begin, y[lane], width, HEIGHT, text, fill, 13)
    for begin in DOWN:
        drawing.box(LEFT + begin, y["link"] + 6, 34, HEIGHT - 12, "orange")
        drawing.arrow(LEFT + begin + 17, y["link"] + 8, LEFT + begin + 17, y["host"] - 2)
    for begin in UP:
        drawing.box(LEFT + begin, y["link"] + 6, 22, HEIGHT - 12, "violet")
        drawing.arrow(LEFT + begin + 11, y["link"] + HEIGHT - 8, LEFT + begin + 11, y["GPU"] + HEIGHT + 3)
    drawing.text(LEFT + 200, y["link"] - 6, "hidden by backward", 12)
    drawing.text(LEFT + 388, y["host"] + HEIGHT + 18, "not hidden", 12)
    drawing.legend(320, [("orange", "reduced gradients of a bucket: 4 bytes"), ("violet", "own values of a bucket: 4 or 2 bytes")], LEFT)
    print(drawing.svg(336))


if __name__ == "__main__":
    main()
