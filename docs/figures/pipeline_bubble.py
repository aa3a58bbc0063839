#!/usr/bin/env python3
"""Draws two schedules of a pipeline of four stages and eight micro-batches: forward of all first, and one forward, one
backward. A backward pass takes twice as long as a forward pass."""
from drawing import Drawing

STAGES, BATCHES, UNIT, LANE = 4, 8, 18, 24
LEFT, TOP, PANEL = 64, 46, 148
FORWARD, BACKWARD = 1, 2  # units of time


def schedule(one_by_one):
    """The orders of the stages: lists of ("F" or "B", micro-batch)."""
    orders = []
    for stage in range(STAGES):
        warm = min(BATCHES, STAGES - stage) if one_by_one else BATCHES
        order = [("F", batch) for batch in range(warm)]
        for batch in range(BATCHES):
            order.append(("B", batch))
            if warm + batch < BATCHES:
                order.append(("F", warm + batch))
        orders.append(order)
    return orders


def times(orders):
    """The begin of each entry: a stage is ready, and the neighbour has ended the pass before."""
    ends, free, rest = {}, [0] * STAGES, [list(order) for order in orders]
    begins = {}
    while any(rest):
        for stage in range(STAGES):
            while rest[stage]:
                kind, batch = rest[stage][0]
                before = (kind, batch, stage - 1) if kind == "F" else (kind, batch, stage + 1)
                if 0 <= before[2] < STAGES and before not in ends:
                    break
                begin = max(free[stage], ends.get(before, 0))
                begins[kind, batch, stage] = begin
                ends[kind, batch, stage] = free[stage] = begin + (FORWARD if kind == "F" else BACKWARD)
                rest[stage].pop(0)
    return begins, max(free)


def alive(orders):
    """The most micro-batches whose activations a stage keeps."""
    most = now = 0
    for kind, _ in orders[0]:
        now += 1 if kind == "F" else -1
        most = max(most, now)
    return most


def main():
    drawing = Drawing()
    for panel, one_by_one in enumerate((False, True)):
        orders = schedule(one_by_one)
        begins, length = times(orders)
        y = TOP + PANEL * panel
        name = "one forward, one backward" if one_by_one else "all forward first"
        waits = (STAGES - 1) / (BATCHES + STAGES - 1)
        drawing.text(10, y - 22, f"{name}: the bubble is {waits:.2f}; stage 0 keeps {alive(orders)} of {BATCHES} micro-batches",
                     13, bold=True)
        for stage in range(STAGES):
            top = y + LANE * stage
            drawing.text(LEFT - 8, top + 18, f"stage {stage}", 12, "end")
            drawing.box(LEFT, top, UNIT * length, LANE, "white")
        for (kind, batch, stage), begin in begins.items():
            width = UNIT * (FORWARD if kind == "F" else BACKWARD)
            drawing.cell(LEFT + UNIT * begin, y + LANE * stage, width, LANE, batch, "light" if kind == "F" else "blue", 12)
    y = drawing.legend(TOP + 2 * PANEL - 26, [("light", "forward of a micro-batch"), ("blue", "backward"), ("white", "waits: the bubble")], LEFT)
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
