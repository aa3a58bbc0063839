#!/usr/bin/env python3
"""Draws the forward pass of attention on Hopper from the events of traces/attention_hopper.json, which
build-emulated/bin/trace_attention --json printed.

The emulator has no time. Each role's events are placed in the order of its program, as early as the
barriers and the clocks below allow. A product waits until the tensor cores have done those issued before it.
"""
import json
import sys
from pathlib import Path

from drawing import Drawing

TRACE = Path(__file__).resolve().parent / "traces" / "attention_hopper.json"

# Assumed clocks. 64 x 128 x 16 multiply-adds at 2,048 a clock; 64 x 128 maxima at 64 a clock, then as many
# exponentials at 16 a clock; 64 x 128 outputs corrected at 128 a clock; half as many packs at 64 a clock.
WGMMA_COLUMN, SOFTMAX, CORRECT, PACK = 0.5, 128 + 512, 64, 64
LATENCY, COPY_BYTES = 600, 64  # of the copy engine: until the first bytes come, and then of each clock

ROLES = ["producer", "consumer 0", "consumer 1"]
FILLS = {"consumer 0": "blue", "consumer 1": "dark"}
STAGES = {"Q": 1, "K": 2, "V": 2}
LEFT, RIGHT = 112, 672


class Pipeline:
    """The events with clocks: when tiles are started, full and empty, and what the roles compute."""

    def __init__(self, events):
        self.left = {role: [event for event in events if event["role"] == role] for role in ROLES}
        self.clock = dict.fromkeys(ROLES, 0.0)
        self.engine = self.tensor_cores = 0.0  # free from here on
        self.started, self.full, self.released = {}, {}, {}
        self.passed, self.turns = {}, dict.fromkeys(ROLES, 0)
        self.products, self.done, self.work = [], {}, []
        self.next_work = dict.fromkeys(ROLES, ())
        self.edges = []  # a turn that is passed: (clock, from, clock, to)
        while any(self.left.values()):
            ready = [(clock, role) for role in ROLES if (clock := self.ready(role)) is not None]
            if not ready:
                sys.exit("attention_hopper.py: every role waits for another; is the trace complete?")
            clock, role = min(ready, key=lambda pair: (pair[0], ROLES.index(pair[1])))
            self.run(role, self.left[role].pop(0), clock)

    def ready(self, role):
        """When the role's next event happens, or None if another role must go first."""
        if not self.left[role]:
            return None
        event, clock = self.left[role][0], self.clock[role]
        if event["event"] != "barrier_arrived":
            clock += sum(length for _, length in self.next_work[role])
        name = event["object"].split()[0]
        if event["event"] == "barrier_waited" and event["object"].endswith("full"):
            return max(clock, self.full[name]) if name in self.full else None
        if event["event"] == "barrier_waited":
            releases = self.released.get(name, [])
            return max([clock, *releases]) if len(releases) == 2 else None
        if event["event"] == "named_synced":
            passes = self.passed.get(event["object"], [])
            return max(clock, passes[self.turns[role]][0]) if len(passes) > self.turns[role] else None
        if event["event"] == "products_waited":
            return max(clock, self.done[role, event["object"]][0])
        return clock

    def run(self, role, event, clock):
        kind, thing = event["event"], event["object"]
        name = thing.split()[0]
        if kind == "barrier_arrived":
            if role != "producer":
                self.released.setdefault(name, []).append(clock)
            return  # work comes after it
        begin = self.clock[role]
        for label, length in self.next_work[role]:
            self.work.append((role, begin, begin + length, label))
            begin += length
        self.next_work[role] = ()
        self.clock[role] = clock
        if kind == "copy_started":
            self.engine = max(clock + LATENCY, self.engine) + event["amount"] * event["times"] / COPY_BYTES
            self.started[name], self.full[name] = clock, self.engine
        elif kind == "named_arrived":
            self.passed.setdefault(thing, []).append((clock, role))
        elif kind == "named_synced":
            passed, giver = self.passed[thing][self.turns[role]]
            self.edges.append((passed, giver, clock, role))
            self.turns[role] += 1
        elif kind in ("tiles_multiplied", "registers_multiplied"):
            begin = max(clock, self.tensor_cores)
            self.tensor_cores = begin + event["times"] * event["amount"] * WGMMA_COLUMN
            letter = "S" if kind == "tiles_multiplied" else "O"
            number = sum(r == role and label[0] == letter for r, _, _, label in self.products)
            self.products.append((role, begin, self.tensor_cores, f"{letter}{number}"))
            self.done[role, thing] = self.tensor_cores, letter
        elif kind == "products_waited":
            if self.done[role, thing][1] == "S":
                packs = [("", PACK)] if event["amount"] == 0 else []
                softmaxes = sum(r == role and label[:1] == "P" for r, _, _, label in self.work)
                self.next_work[role] = ((f"P{softmaxes}", SOFTMAX), *packs)
            elif any(e["event"] == "registers_multiplied" for e in self.left[role]):
                self.next_work[role] = (("", CORRECT + PACK),)


def main():
    with open(TRACE, encoding="utf-8") as file:
        pipeline = Pipeline(json.load(file))
    end = max(last for _, _, last, _ in pipeline.products)
    drawing = Drawing()

    def x(clock):
        return LEFT + (RIGHT - LEFT) * clock / end

    top = 34
    for tick in range(0, int(end) + 1, 1000):
        drawing.path([(x(tick), top - 8), (x(tick), top + 250)], stroke="#d5d8dc", width=0.8)
        drawing.text(x(tick), top - 13, f"{tick:,}", 11, "middle")
    drawing.text(8, top - 13, "assumed clocks", 11)
    y = top
    for ring, stages in STAGES.items():
        for stage in range(stages):
            drawing.text(8, y + 13, f"{ring}, stage {stage}" if stages > 1 else ring, 12)
            for tile, started in pipeline.started.items():
                if tile[0] != ring or int(tile[1:]) % stages != stage:
                    continue
                full, empty = pipeline.full[tile], max(pipeline.released[tile])
                drawing.box(x(started), y, x(full) - x(started), 17, "white")
                drawing.cell(x(full), y, x(empty) - x(full), 17, tile if stages > 1 else ring, "grey", 12)
            y += 22
    y += 14
    rows = {"tensor cores": y, "consumer 0": y + 48, "consumer 1": y + 96}
    for label, row in rows.items():
        drawing.text(8, row + 20, label, 12)
        drawing.path([(LEFT, row + 30), (RIGHT, row + 30)], stroke="#888888", width=0.6)
    for role, begin, last, label in pipeline.products:
        drawing.cell(x(begin), rows["tensor cores"], x(last) - x(begin), 30, label, FILLS[role], 12)
    for role, begin, last, label in pipeline.work:
        fill = FILLS[role] if label else "yellow"
        drawing.cell(x(begin), rows[role], x(last) - x(begin), 30, label, fill, 11)
    for passed, giver, clock, taker in pipeline.edges:
        down = rows[taker] > rows[giver]
        drawing.arrow(x(passed), rows[giver] + (31 if down else -1), x(clock), rows[taker] + (-1 if down else 31))
    y = drawing.legend(y + 154, [("white", "a tile on its way"), ("grey", "a tile that is there"),
                                 ("blue", "consumer 0"), ("dark", "consumer 1"),
                                 ("yellow", "O corrected, P packed")])
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
