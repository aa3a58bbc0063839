#!/usr/bin/env python3
"""Draws the questions that choose a strategy, from the top to the answers."""
from drawing import Drawing

WIDTH, HEIGHT = 214, 50
# A question or an answer: its place in columns and rows, its lines, and whether it is an answer.
BOXES = {"fits": (0, 0, ["Do 6 P + 12 P / N", "+ activations fit?"], False), "ddp": (1, 0, ["zero1: no more bytes than", "ddp, and a smaller update"], True),
         "zero2": (0, 1, ["Do 2 P + 16 P / N + slots", "+ activations fit?"], False), "zero": (1, 1, ["zero2: values are", "sent once"], True),
         "fsdp": (0, 2, ["Do 16 P / N + slots", "+ activations fit?"], False), "less": (1, 2, ["smaller micro-batches,", "then recomputation,", "more ranks"], True),
         "nodes": (0, 3, ["Several machines, and a", "slow network between?"], False), "plain": (1, 3, ["fsdp"], True),
         "hsdp": (0, 4, ["hsdp: replicas of F ranks,", "the least F whose 16 P / F fit"], True)}
ARROWS = [("fits", "ddp", "yes"), ("fits", "zero2", "no"), ("zero2", "zero", "yes"), ("zero2", "fsdp", "no"), ("fsdp", "less", "no"),
          ("fsdp", "nodes", "yes"), ("nodes", "plain", "no"), ("nodes", "hsdp", "yes")]
LEFT, TOP, COLUMN, ROW = 70, 14, 340, 84


def corner(name):
    column, row, *_ = BOXES[name]
    return LEFT + column * COLUMN, TOP + row * ROW


def main():
    drawing = Drawing()
    for begin, end, told in ARROWS:
        (x, y), (to_x, to_y) = corner(begin), corner(end)
        if y == to_y:
            drawing.arrow(x + WIDTH, y + HEIGHT / 2, to_x, y + HEIGHT / 2)
            drawing.text((x + WIDTH + to_x) / 2, y + HEIGHT / 2 - 6, told, 12, "middle")
        else:
            drawing.arrow(x + WIDTH / 2, y + HEIGHT, x + WIDTH / 2, to_y)
            drawing.text(x + WIDTH / 2 + 8, (y + HEIGHT + to_y) / 2 + 4, told, 12)
    for name, (_, _, lines, answer) in BOXES.items():
        x, y = corner(name)
        drawing.box(x, y, WIDTH, HEIGHT, "yellow" if answer else "light")
        if answer:
            drawing.box(x + 5, y + 4, WIDTH - 10, HEIGHT - 8, "white", line=0.4)
        for number, line in enumerate(lines):
            drawing.text(x + WIDTH / 2, y + HEIGHT / 2 + 5 + 15 * (number - (len(lines) - 1) / 2), line, 13, "middle")
    print(drawing.svg(TOP + 5 * ROW - 14))


if __name__ == "__main__":
    main()
