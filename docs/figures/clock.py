#!/usr/bin/env python3
"""Draws a step of ddp and of fsdp on a virtual clock: the order is that of the marks which
build/bin/trace_step prints, and the times are the round costs below. Nothing is measured.

The communication stream runs its calls in order, each as early as it can. Computation waits for the gather of
the unit that it opens, and at the end for all reductions.
"""
import sys

from drawing import Drawing

FORWARD = {"embedding": 8, "block": 10, "head": 12}  # units of time
BACKWARD = {"embedding": 16, "block": 20, "head": 24}
COLLECTIVE, OPTIMIZER, RANKS = 9, 24, 2  # fsdp divides the optimizer by the ranks
LEFT, SCALE, BAR = 92, 2.72, 26


class Clock:
    """The two streams of a rank, and what they have run: (begin, end, name, kind)."""

    def __init__(self):
        self.now, self.free = 0.0, 0.0
        self.compute, self.communication, self.slots = [], [], []
        self.ready = {}

    def run(self, name, kind, cost):
        self.compute.append((self.now, self.now + cost, name, kind))
        self.now += cost

    def wait(self, until):
        if until > self.now:
            self.compute.append((self.now, until, "", "wait"))
            self.now = until

    def call(self, name, kind):
        begin = max(self.now, self.free)
        self.free = begin + COLLECTIVE
        self.communication.append((begin, self.free, name, kind))
        if kind == "gather":
            self.ready[name] = self.free


def short(unit):
    return {"embedding": "emb"}.get(unit, unit)


def cost_of(table, unit, head=False):
    return table["head" if head else "embedding" if unit == "embedding" else "block"]


def ddp(marks):
    """Parameters are always there, so the marks have the reductions only, from the last unit to the first."""
    clock = Clock()
    reduced = [mark[7:] for mark in marks if mark.startswith("reduce ")]
    blocks = reduced[:-1]
    for unit in ["embedding", *reversed(blocks)]:
        clock.run(short(unit), "forward", cost_of(FORWARD, unit))
    clock.run("head", "forward", FORWARD["head"])
    clock.run("head", "backward", BACKWARD["head"])
    for unit in reduced:
        clock.run(short(unit), "backward", cost_of(BACKWARD, unit))
        clock.call(short(unit), "reduce")
    clock.wait(clock.free)
    clock.run("Adam", "optimizer", OPTIMIZER)
    return clock


def fsdp(marks):
    """Follows the marks one by one. What is queued behind the last reduction is for the next step."""
    clock = Clock()
    last = max(i for i, mark in enumerate(marks) if mark.startswith("reduce "))
    backward = head_open = False
    for i, mark in enumerate(marks):
        word, _, unit = mark.partition(" ")
        if i == last + 1:
            clock.wait(clock.free)
            clock.run("Adam", "optimizer", OPTIMIZER / RANKS)
        if word == "gather":
            clock.call(short(unit), "gather")
        elif word == "open" and not unit.startswith("gradients "):
            if head_open and not backward:  # the unit before the head opens: the head has been through backward
                clock.run("head", "backward", BACKWARD["head"])
                backward = True
            clock.wait(clock.ready.get(short(unit), 0))
            head_open = head_open or (unit == "embedding" and i > 0 and clock.compute[-1][2] == "head")
        elif word == "close":
            at_head = unit == "embedding" and not backward and bool(clock.compute)
            table = BACKWARD if backward else FORWARD
            clock.run("head" if at_head else short(unit), "backward" if backward else "forward",
                      cost_of(table, unit, at_head))
        elif word == "reduce":
            clock.call(short(unit), "reduce")
    return clock


FILLS = {"forward": "blue", "backward": "green", "optimizer": "light", "wait": "dark", "gather": "orange", "reduce": "violet"}


def draw_lane(drawing, y, title, spans):
    drawing.text(8, y + 18, title, 13)
    for begin, end, name, kind in spans:
        x, width = LEFT + SCALE * begin, SCALE * (end - begin)
        drawing.box(x, y, width, BAR, FILLS[kind])
        if FILLS[kind] in ("green", "orange", "violet") and name:
            drawing.box(x + width / 2 - 3.2 * len(name) - 1, y + 6, 6.4 * len(name) + 2, BAR - 12, "white", "none")
        if name:
            drawing.text(x + width / 2, y + 17.5, name, round(min(11.0, (width - 3) / (0.75 * len(name))), 1), "middle")


def number(drawing, time, y, text):
    x = LEFT + SCALE * time
    drawing.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="#222222"/>')
    drawing.text(x, y + 4.2, text, 12, "middle", bold=True, fill="#ffffff")


def main():
    runs = {}
    for line in sys.stdin.read().splitlines():
        if line.startswith("# "):
            marks = runs.setdefault(line.split()[-1], [])
        elif line:
            marks.append(line)
    drawing = Drawing()
    y = drawing.legend(18, [("blue", "forward"), ("green", "backward"), ("light", "optimizer"),
                            ("dark", "waiting"), ("orange", "gather"), ("violet", "reduce")]) + 18
    for name, follow in (("ddp", ddp), ("fsdp", fsdp)):
        clock = follow(runs[name])
        drawing.text(8, y, name, 15, bold=True)
        draw_lane(drawing, y + 12, "compute", clock.compute)
        draw_lane(drawing, y + 44, "collectives", clock.communication)
        if name == "fsdp":
            gathers = [span for span in clock.communication if span[3] == "gather"]
            reduces = [span for span in clock.communication if span[3] == "reduce"]
            turn = next(span for span in clock.compute if span[2:] == ("head", "backward"))
            places = [gathers[0][0] + 4.5, turn[0], reduces[0][0] + 4.5, reduces[-1][1] - 4.5, gathers[-1][0]]
            for i, time in enumerate(places, 1):
                number(drawing, time, y + 88, str(i))
        y += 100 if name == "ddp" else 106
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
