#!/usr/bin/env python3
"""Draws the time of a ring all-gather by the formula (N - 1) (latency + S / (N bandwidth)).

The latency and the bandwidth are round numbers for the drawing; they were not measured.
"""
import math

from drawing import Drawing

LATENCY, BANDWIDTH = 5e-6, 100e9  # seconds, bytes per second
LEFT, TOP, WIDTH, HEIGHT = 74, 40, 470, 270
SIZES = (10, 33)  # powers of two
TIMES = (-5, 0)  # powers of ten


def x_of(size):
    return LEFT + WIDTH * (math.log2(size) - SIZES[0]) / (SIZES[1] - SIZES[0])


def y_of(time):
    return TOP + HEIGHT * (TIMES[1] - math.log10(time)) / (TIMES[1] - TIMES[0])


def main():
    drawing = Drawing()
    drawing.text(8, 18, "time of a ring all-gather", 14, bold=True)
    for power in range(TIMES[0], TIMES[1] + 1):
        y = y_of(10.0**power)
        drawing.path([(LEFT, y), (LEFT + WIDTH, y)], "#dddddd", 1)
        label = f"{10 ** (power + 6):g} us" if power < -3 else f"{10 ** (power + 3):g} ms" if power < 0 else "1 s"
        drawing.text(LEFT - 6, y + 4, label, 12, "end")
    for power, label in [(10, "1 KiB"), (15, "32 KiB"), (20, "1 MiB"), (25, "32 MiB"), (30, "1 GiB"), (33, "8 GiB")]:
        x = x_of(2.0**power)
        drawing.path([(x, TOP), (x, TOP + HEIGHT)], "#dddddd", 1)
        drawing.text(x, TOP + HEIGHT + 16, label, 12, "middle")
    drawing.text(LEFT + WIDTH, TOP + HEIGHT + 34, "S, the whole tensor", 12, "end")
    for ranks, dash in [(8, None), (64, "7 4"), (512, "2 3")]:
        sizes = [2.0 ** (SIZES[0] + (SIZES[1] - SIZES[0]) * i / 60) for i in range(61)]
        times = [(ranks - 1) * (LATENCY + size / (ranks * BANDWIDTH)) for size in sizes]
        drawing.path([(x_of(s), y_of(t)) for s, t in zip(sizes, times)], width=2.2, dash=dash)
        drawing.text(LEFT + 12, y_of(times[0]) - 6, f"{ranks} ranks", 13)
        # Where the latency is half of the time.
        half = ranks * BANDWIDTH * LATENCY
        drawing.box(x_of(half) - 5, y_of(2 * (ranks - 1) * LATENCY) - 5, 10, 10, "orange")
    x, y = LEFT + WIDTH + 16, TOP + 40
    drawing.box(x, y - 11, 12, 12, "orange")
    for line, text in enumerate(["half of the time", "is latency", "", "left: N matters", "right: S matters"]):
        drawing.text(x + 18, y + 18 * line, text, 12)
    print(drawing.svg(TOP + HEIGHT + 46))


if __name__ == "__main__":
    main()
