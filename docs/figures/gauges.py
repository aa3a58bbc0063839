#!/usr/bin/env python3
"""gauges.py ROW...: what a chapter changes: does a rank's memory fit, is communication hidden, are the bits the same.

Reads the output of tessera plan with --machine h100. A row is a strategy; or "rung2", ddp whose communication follows its
computation; or "experts", fsdp in the output of a second command. It has a bar of a rank's memory, with a line at 80 GiB, and
three gauges: "hidden" is the share of a step in which computation does not wait. The last row is the chapter's.
"""
import re
import sys

from drawing import Drawing
from memory_bars import CATEGORIES, ROOM, read

LINK = 450e9  # bytes per second of an h100
WIDEST = 139.65  # GiB of ddp, so that bars of all chapters are comparable
LEFT, TOP, BAR, PITCH = 96, 66, 26, 50
MEMORY, GAUGE, SPACE = 278, 36, 82  # widths in pixels
LABELS = {"rung2": "ddp, rung 2", "experts": "+ experts"}


def times(text):
    """Milliseconds of a step and of its exposed communication, by strategy."""
    table = text[text.index("exposed ms"):]
    return {name: (float(step), float(exposed))
            for name, step, exposed in re.findall(r"^  (\S+)(?: \d+ x \d+)? +([\d.]+) +([\d.]+) ", table, re.M)}


def measured(text, strategy):
    """The parts of a rank's memory in GiB, and the share of the step without waits."""
    parts, sent = next((parts, sent) for name, parts, sent in read(text)[0] if name.split()[0] == strategy)
    step, exposed = times(text)[strategy]
    return parts, sent, step, exposed


def row_of(name, outputs):
    if name == "rung2":
        parts, sent, step, exposed = measured(outputs[0], "ddp")
        return parts, (step - exposed) / (step - exposed + 1e3 * sent * 2**30 / LINK)
    parts, _, step, exposed = measured(outputs[-1], "fsdp") if name == "experts" else measured(outputs[0], name)
    return parts, 1 - exposed / step


def main():
    outputs = re.split(r"^# .*\n", sys.stdin.read(), flags=re.M)
    outputs = outputs[1:] or outputs
    rows = [(name, *row_of(name, outputs)) for name in sys.argv[1:]]
    drawing = Drawing()
    drawing.legend(18, [(fill, name) for name, fill in CATEGORIES])
    scale = MEMORY / max(WIDEST, *(sum(parts) for _, parts, _ in rows))
    gauges = LEFT + MEMORY + 62
    for x, title in [(LEFT, "memory of a rank, GiB"), (gauges, "fits"), (gauges + SPACE, "hidden"), (gauges + 2 * SPACE, "bits")]:
        drawing.text(x, TOP - 16, title, 12, bold=True)
    for index, (name, parts, busy) in enumerate(rows):
        y, x, peak = TOP + PITCH * index, LEFT, sum(parts)
        drawing.text(LEFT - 8, y + 18, LABELS.get(name, name), 13, "end", bold=index == len(rows) - 1)
        for (_, fill), part in zip(CATEGORIES, parts):
            if part > 0:
                drawing.box(x, y, scale * part, BAR, fill)
            x += scale * part
        drawing.text(x + 5, y + 18, f"{peak:.1f}", 13)
        for number, (share, told) in enumerate([(min(1.0, ROOM / peak), "yes" if peak <= ROOM else "no"),
                                                (busy, f"{100 * busy:.0f} %"), (1.0, "same")]):
            at = gauges + SPACE * number
            drawing.box(at, y + 4, GAUGE, BAR - 8, "white")
            drawing.box(at, y + 4, GAUGE * share, BAR - 8, "green" if told != "no" else "orange")
            drawing.text(at + GAUGE + 5, y + 18, told, 12)
    bottom = TOP + PITCH * len(rows) - 12
    edge = LEFT + scale * ROOM
    drawing.path([(edge, TOP - 8), (edge, bottom)], "#222222", 1.6, dash="5 3")
    drawing.text(edge, bottom + 16, "80 GiB", 12, "middle")
    print(drawing.svg(bottom + 26))


if __name__ == "__main__":
    main()
