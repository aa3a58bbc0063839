#!/usr/bin/env python3
"""Draws one training step of rank 0 here and in PyTorch's FSDP2, from the traces in docs/figures/traces/.

The traces are measurements, so they are kept. These commands write new ones:

  build/bin/trace_step fsdp docs/figures/traces/fsdp.json
  tools/bench/torch_trace.py docs/figures/traces/fsdp2.json
  tools/bench/torch_trace.py docs/figures/traces/fsdp2_prefetch.json --prefetch

Each panel has the three lanes of timeline.py and a scale of its own.
"""
import pathlib

import timeline
from drawing import WIDTH, Drawing

TRACES = pathlib.Path(__file__).parent / "traces"
PANELS = [("fsdp", "Tessera, fsdp"), ("fsdp2", "PyTorch, FSDP2 as it comes"),
          ("fsdp2_prefetch", "PyTorch, FSDP2 with asynchronous gathers, prefetched in forward")]
LEFT, RIGHT = 106, 10
BAR, ROW = 24, 9
FILLS = timeline.FILLS | {"copy": "yellow"}
LEGEND = [("blue", "forward"), ("green", "backward"), ("grey", "optimizer"), ("dark", "waiting for a collective"),
          ("yellow", "copying in or out"), ("light", "weights gathered"), ("orange", "gather parameters"),
          ("violet", "reduce gradients"), ("white", "norm")]


class Panel:
    """One step of one rank, drawn from y down."""

    def __init__(self, drawing, rank, y):
        times = list(rank.times())
        self.drawing, self.rank, self.y = drawing, rank, y
        self.begin, self.microseconds = min(times), max(times) - min(times)

    def x(self, time):
        return LEFT + (WIDTH - LEFT - RIGHT) * (time - self.begin) / self.microseconds

    def span(self, begin, end, y, height, kind):
        self.drawing.box(self.x(begin), y, max(0.6, self.x(end) - self.x(begin)), height, FILLS[kind], line=0.4)

    def under(self, labels, y):
        """The texts of (begin, end, text), each below its box. Where two would touch, the wider box has
        its text."""
        placed = []
        for begin, end, text in sorted(labels, key=lambda label: label[0] - label[1]):
            half = 3.2 * len(text) + 2
            middle = min((self.x(begin) + self.x(end)) / 2, WIDTH - half)
            if all(abs(middle - other) >= half + other_half for other, other_half in placed):
                self.drawing.text(middle, y, text, 11, "middle")
                placed.append((middle, half))

    def axis(self, height):
        ticks = next(t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500) if self.microseconds / t <= 12000)
        self.drawing.text(LEFT - 8, self.y - 4, "ms", 11, "end")
        for tick in range(0, int(self.microseconds / 1000) + 1, ticks):
            x = self.x(self.begin + 1000 * tick)
            self.drawing.path([(x, self.y), (x, self.y + height)], stroke="#cccccc", width=0.7)
            self.drawing.text(x, self.y - 4, tick, 11, "middle")

    def compute(self):
        self.drawing.text(8, self.y + 16, "compute", 12)
        passes = [s for s in self.rank.compute if s[2].partition(" ")[0] in ("forward", "backward", "optimizer")]
        for begin, end, name in passes:
            self.span(begin, end, self.y, BAR, name.partition(" ")[0])
        for begin, end, name in self.rank.compute:
            if name.startswith("copy "):
                self.span(begin, end, self.y, BAR, "copy")
            elif name == "exposed communication" and end - begin >= timeline.SHORTEST_WAIT:
                self.span(begin, end, self.y, BAR, "exposed")
        self.under([(begin, end, short(name)) for begin, end, name in passes], self.y + BAR + 11)
        self.y += BAR + 18

    def gathered(self):
        self.drawing.text(8, self.y + 9, "gathered", 12)
        intervals = list(timeline.open_intervals(self.rank.marks))
        for begin, end, _, row in intervals:
            self.span(begin, end, self.y + ROW * row, ROW - 1, "open")
        self.y += ROW * (1 + max(row for *_, row in intervals)) + 6

    def communication(self):
        self.drawing.text(8, self.y + 16, "communication", 12)
        for begin, end, name in self.rank.communication:
            self.span(begin, end, self.y, BAR, timeline.kind_of_collective(name))
        self.under([(begin, end, short(name)) for begin, end, name in self.rank.communication], self.y + BAR + 11)
        self.y += BAR + 16

    def draw(self):
        """Returns the y below."""
        at, top = len(self.drawing.parts), self.y
        self.compute()
        self.gathered()
        self.communication()
        lanes = self.drawing.parts[at:]
        del self.drawing.parts[at:]
        height, self.y = self.y - top, top
        self.axis(height)  # behind the lanes
        self.drawing.parts += lanes
        return top + height


def short(name):
    """A unit's name as a label: "forward h.0" is h.0, "forward embedding" is emb."""
    unit = name.partition(" ")[2] or name
    return {"embedding": "emb", "gradient norm": "norm", "optimizer": "update"}.get(unit, unit)


def main():
    drawing = Drawing()
    y = drawing.legend(20, LEGEND) + 10
    for file, title in PANELS:
        ranks = timeline.read(TRACES / f"{file}.json")
        timeline.keep_last_step(ranks)
        panel = Panel(drawing, ranks[0], y + 22)
        drawing.text(8, y, f"{title}: a step of {panel.microseconds / 1000:.0f} ms", 13, bold=True)
        y = panel.draw() + 26
    print(drawing.svg(y - 12))


if __name__ == "__main__":
    main()
