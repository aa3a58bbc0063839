#!/usr/bin/env python3
"""Draws the schedules of a pipeline of four ranks and eight micro-batches, from the output of build/bin/pipeline SCHEDULE."""
import re
import sys

from drawing import Drawing

UNIT, LANE, LEFT, TOP, PANEL = 18, 22, 64, 42, 128
FILLS = {("forward", 0): "light", ("forward", 1): "yellow", ("backward", 0): "blue", ("backward", 1): "violet",
         ("inputs", 0): "blue", ("weights", 0): "green"}


def main():
    outputs = re.split(r"^# (\S+ \S+)\n", sys.stdin.read(), flags=re.M)[1:]
    drawing = Drawing()
    for panel, (command, text) in enumerate(zip(outputs[::2], outputs[1::2])):
        passes = [line.split() for line in text.splitlines()]
        y, length = TOP + PANEL * panel, max(float(one[5]) for one in passes)
        busy = sum(float(end) - float(begin) for *_, begin, end in passes)
        lanes = 1 + max(int(one[0]) for one in passes)
        drawing.text(10, y - 12, f"{command.split()[1]}: waits for {1 - busy / lanes / length:.2f} of the time", 13, bold=True)
        for lane in range(lanes):
            drawing.text(LEFT - 8, y + LANE * lane + 15, f"rank {lane}", 12, "end")
            drawing.box(LEFT, y + LANE * lane, UNIT * length, LANE, "white")
        for rank, kind, batch, chunk, begin, end in passes:
            width = UNIT * (float(end) - float(begin))
            drawing.cell(LEFT + UNIT * float(begin), y + LANE * int(rank), width, LANE, batch, FILLS[kind, int(chunk)], 11 if width > 12 else 9)
    y = drawing.legend(TOP + PANEL * len(outputs) // 2 - 16,
                       [("light", "forward"), ("blue", "backward, or its inputs"), ("green", "weights"),
                        ("yellow", "forward, second chunk"), ("violet", "backward, second chunk"), ("white", "waits: the bubble")], LEFT)
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
