#!/usr/bin/env python3
"""Draws the life of a unit on one rank of four in a step of FSDP: the share that it holds, over time. It moves."""
from drawing import Drawing

RANKS = 4
# Phases: name, length, the share of the values at its begin and end, and of the gradients.
PHASES = [("sharded", 3, (1, 1), (0, 0)), ("gather", 2, (1, 4), (0, 0)), ("forward", 3, (4, 4), (0, 0)),
          ("sharded", 5, (1, 1), (0, 0)), ("gather", 2, (1, 4), (0, 0)), ("backward", 4, (4, 4), (0, 4)),
          ("reduce-scatter", 3, (1, 1), (4, 1)), ("update", 2, (1, 1), (1, 1))]
LEFT, TOP, HEIGHT, GAP, WIDTH = 92, 64, 64, 46, 590
SECONDS = 10


def main():
    drawing = Drawing()
    drawing.legend(18, [("blue", "values"), ("orange", "gradients")])
    scale = WIDTH / sum(length for _, length, _, _ in PHASES)
    for row, (title, fill, index) in enumerate([("values", "blue", 2), ("gradients", "orange", 3)]):
        bottom = TOP + HEIGHT + row * (HEIGHT + GAP)
        drawing.text(LEFT - 10, bottom - HEIGHT / 2 + 4, title, 13, "end")
        drawing.text(LEFT - 10, bottom - HEIGHT + 2, "whole", 11, "end")
        drawing.text(LEFT - 10, bottom - HEIGHT / RANKS + 12, "1/4", 11, "end")
        x = LEFT
        for _, length, *levels in PHASES:
            begin, end = (HEIGHT * level / RANKS for level in levels[index - 2])
            width = length * scale
            if begin or end:
                drawing.area([(x, bottom), (x, bottom - begin), (x + width, bottom - end), (x + width, bottom)], fill)
            x += width
        drawing.path([(LEFT, bottom), (LEFT + WIDTH, bottom)])
    x, ends = LEFT, TOP + 2 * HEIGHT + GAP
    for number, (name, length, *_) in enumerate(PHASES):
        width = length * scale
        drawing.path([(x, TOP - 10), (x, ends)], "#999999", 0.8, dash="2 3")
        drawing.text(x + width / 2, TOP - 16 if number % 2 == 0 else TOP - 3, name, 11, "middle")
        x += width
    cursor = (f'<line x1="{LEFT}" x2="{LEFT}" y1="{TOP - 10}" y2="{ends}" stroke="#c62828" stroke-width="2">'
              f'<animateTransform attributeName="transform" type="translate" from="0 0" to="{WIDTH} 0" dur="{SECONDS}s" '
              'repeatCount="indefinite"/></line>')
    drawing.parts.append(cursor)
    print(drawing.svg(ends + 16))


if __name__ == "__main__":
    main()
