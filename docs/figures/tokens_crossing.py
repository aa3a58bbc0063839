#!/usr/bin/env python3
"""Draws the time of a layer against the tokens of a rank: computation grows with them, and FSDP's communication does not.

The layer is a block of Llama 2 7B, on H100s: docs/choosing.md has the formulas.
"""
from drawing import Drawing

PARAMETERS = 202_383_360
OPERATIONS, BANDWIDTH = 989.4e12, 450e9  # of a GPU and of its link, per second
VALUE, GRADIENT = 2, 4  # bytes
LEFT, RIGHT, TOP, BOTTOM = 70, 560, 40, 330
TOKENS, MILLISECONDS = 5000, 4.5


def x_of(tokens):
    return LEFT + (RIGHT - LEFT) * tokens / TOKENS


def y_of(milliseconds):
    return BOTTOM - (BOTTOM - TOP) * milliseconds / MILLISECONDS


def main():
    drawing = Drawing()
    drawing.text(LEFT, 20, "milliseconds for a block of Llama 2 7B", 13, bold=True)
    for value in range(5):
        drawing.path([(LEFT, y_of(value)), (RIGHT, y_of(value))], "#dddddd", 0.8)
        drawing.text(LEFT - 8, y_of(value) + 4, value, 12, "end")
    for tokens in range(0, TOKENS + 1, 1000):
        drawing.path([(x_of(tokens), BOTTOM), (x_of(tokens), BOTTOM + 5)])
        drawing.text(x_of(tokens), BOTTOM + 20, f"{tokens:,}", 12, "middle")
    drawing.text((LEFT + RIGHT) / 2, BOTTOM + 42, "tokens of a rank", 13, "middle")
    for name, work, sent, stroke in [("forward", 2, VALUE, "#33587d"), ("backward", 4, VALUE + GRADIENT, "#c25b00")]:
        link = 1e3 * sent * PARAMETERS / BANDWIDTH
        compute = 1e3 * work * PARAMETERS / OPERATIONS  # of one token
        drawing.path([(LEFT, y_of(link)), (RIGHT, y_of(link))], stroke, 2.2, dash="7 4")
        drawing.path([(LEFT, BOTTOM), (RIGHT, y_of(compute * TOKENS))], stroke, 2.2)
        drawing.text(RIGHT + 8, y_of(link) + 4, f"{name}: link", 12, fill=stroke)
        drawing.text(RIGHT + 8, y_of(compute * TOKENS) + 4, f"{name}: compute", 12, fill=stroke)
        crossing = link / compute
        drawing.path([(x_of(crossing), y_of(link)), (x_of(crossing), BOTTOM)], stroke, 1, dash="2 3")
        drawing.parts.append(f'<circle cx="{x_of(crossing):.1f}" cy="{y_of(link):.1f}" r="5" fill="{stroke}"/>')
        drawing.text(x_of(crossing) + 8, y_of(link) + 18, f"{crossing:,.0f} tokens", 13, bold=True)
    drawing.path([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)])
    drawing.text(LEFT + 12, TOP + 14, "Left of a dot the link limits, right of it the computation.", 12)
    print(drawing.svg(BOTTOM + 56))


if __name__ == "__main__":
    main()
