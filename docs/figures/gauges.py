#!/usr/bin/env python3
"""gauges.py STRATEGY...: what a chapter changes: does a rank's memory fit, is communication hidden, are the bits the same.

Reads the output of tessera plan with --machine. Each strategy has a bar of a rank's memory, with a line at 80 GiB, and
three gauges. The last strategy is the chapter's.
"""
import re
import sys

from drawing import Drawing
from memory_bars import CATEGORIES, ROOM, read

LEFT, TOP, BAR, PITCH = 70, 66, 26, 50
MEMORY, GAUGE, SPACE = 300, 36, 84  # widths in pixels


def times(text):
    """Milliseconds of a step and of its exposed communication, by strategy."""
    table = text[text.index("exposed ms"):]
    return {name: (float(step), float(exposed))
            for name, step, exposed in re.findall(r"^  (\S+(?: \d+ x \d+)?) +([\d.]+) +([\d.]+) ", table, re.M)}


def main():
    text = sys.stdin.read()
    rows, _ = read(text)
    found = {name.split()[0]: (name, parts) for name, parts, _ in rows}
    clock = {name.split()[0]: pair for name, pair in times(text).items()}
    drawing = Drawing()
    drawing.legend(18, [(fill, name) for name, fill in CATEGORIES])
    scale = MEMORY / max(sum(parts) for _, parts, _ in rows)
    gauges = LEFT + MEMORY + 62
    for x, title in [(LEFT, "memory of a rank, GiB"), (gauges, "fits"), (gauges + SPACE, "computes"), (gauges + 2 * SPACE, "bits")]:
        drawing.text(x, TOP - 16, title, 12, bold=True)
    for index, strategy in enumerate(sys.argv[1:]):
        name, parts = found[strategy]
        step, exposed = clock[strategy]
        y, x, peak = TOP + PITCH * index, LEFT, sum(parts)
        drawing.text(LEFT - 8, y + 18, strategy, 13, "end", bold=index == len(sys.argv) - 2)
        for (_, fill), part in zip(CATEGORIES, parts):
            if part > 0:
                drawing.box(x, y, scale * part, BAR, fill)
            x += scale * part
        drawing.text(x + 5, y + 18, f"{peak:.1f}", 13)
        busy = 1 - exposed / step
        for number, (share, told) in enumerate([(min(1.0, ROOM / peak), "yes" if peak <= ROOM else "no"),
                                                (busy, f"{100 * busy:.0f} %"), (1.0, "same")]):
            at = gauges + SPACE * number
            drawing.box(at, y + 4, GAUGE, BAR - 8, "white")
            drawing.box(at, y + 4, GAUGE * share, BAR - 8, "green" if told != "no" else "orange")
            drawing.text(at + GAUGE + 5, y + 18, told, 12)
    bottom = TOP + PITCH * (len(sys.argv) - 1) - 12
    edge = LEFT + scale * ROOM
    drawing.path([(edge, TOP - 8), (edge, bottom)], "#222222", 1.6, dash="5 3")
    drawing.text(edge, bottom + 16, "80 GiB", 12, "middle")
    print(drawing.svg(bottom + 26))


if __name__ == "__main__":
    main()
