#!/usr/bin/env python3
"""Draws the nine rungs of the ladder and what each rank holds: values, gradients and moments, whole or in part."""
from drawing import Drawing

# A rung: its number and name, and the ranks that share its values, gradients and moments: "1", "N" or "F".
RUNGS = [("1", "one rank", "111", "-"), ("2", "DDP", "111", "all-reduce"), ("3", "DDP, overlapped", "111", "all-reduce"),
         ("4", "ZeRO-1", "11N", "reduce-scatter, all-gather"), ("5", "ZeRO-2", "1NN", "reduce-scatter, all-gather"),
         ("6", "ZeRO-3", "NNN", "broadcasts, reduces"), ("7", "FSDP", "NNN", "all-gather, reduce-scatter"),
         ("8", "HSDP", "FFF", "the same, and an all-reduce"), ("9", "expert parallelism", "EEE", "all-to-all, all-reduce")]
COLUMNS = [("values", "dark"), ("gradients", "orange"), ("moments", "blue")]
PARTS = {"1": (1.0, "whole"), "N": (0.25, "1/N"), "F": (0.5, "1/F"), "E": (0.62, "experts 1/N")}
LEFT, TOP, BAR, PITCH, WIDTH = 160, 46, 20, 27, 74


def main():
    drawing = Drawing()
    for column, (name, _) in enumerate(COLUMNS):
        drawing.text(LEFT + column * 116, TOP - 14, name, 13, bold=True)
    drawing.text(LEFT + 356, TOP - 14, "moved by", 13, bold=True)
    for index, (number, name, shares, calls) in enumerate(RUNGS):
        y = TOP + index * PITCH
        drawing.text(28, y + 15, number, 14, "end", bold=True)
        drawing.text(38, y + 15, name, 13)
        for column, (share, (_, fill)) in enumerate(zip(shares, COLUMNS)):
            x, (part, told) = LEFT + column * 116, PARTS[share]
            drawing.box(x, y, WIDTH, BAR, "white")
            drawing.box(x, y, WIDTH * part, BAR, fill)
            drawing.text(x + WIDTH + 4, y + 14, told if share != "E" else "", 11)
        drawing.text(LEFT + 356, y + 15, calls, 12)
    bottom = TOP + len(RUNGS) * PITCH
    drawing.text(38, bottom + 14, "A bar is the memory of a rank: whole, or its part. Rung 9 divides the experts only.", 12)
    print(drawing.svg(bottom + 26))


if __name__ == "__main__":
    main()
