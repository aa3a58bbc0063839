#!/usr/bin/env python3
"""Draws which unit each slot holds over a step of FSDP, from the marks that build/bin/trace_step prints.

A column is a unit in use. The embedding is also the head, at the turn from forward to backward. A bucket at both ends has slot 2; inner bucket i has slot i mod 2
(sharding/plan/schedule.h). A star marks a gather that is queued while the unit of the column computes.
"""
import sys

from drawing import Drawing

LEFT, TOP, CELL, HEIGHT = 92, 54, 60, 30


def slot_of(unit, units):
    index = units.index(unit)
    return 2 if index == 0 else index % 2


def read(marks):
    """[(unit, {slot: unit}, units being gathered)] for each use of a unit, and the first use in backward."""
    units = list(dict.fromkeys(mark[5:] for mark in marks
                               if mark.startswith("open ") and not mark.startswith("open gradients ")))
    last = max(i for i, mark in enumerate(marks) if mark.startswith("reduce "))
    # The first gathers were queued by the step before, as the gathers behind the last reduction are.
    slots = {slot_of(mark[7:], units): mark[7:] for mark in marks[last:] if mark.startswith("gather ")}
    uses = []
    for mark in marks[:last]:
        word, _, unit = mark.partition(" ")
        if word == "gather":
            slots[slot_of(unit, units)] = unit
            uses[-1][1].update(slots)
            uses[-1][2].append(unit)
        elif word == "open" and not unit.startswith("gradients "):
            uses.append((unit, dict(slots), []))
    at_ends = [i for i, use in enumerate(uses) if use[0] == units[0]]
    return uses, at_ends[2]  # the embedding, the head, and the head's backward pass


def main():
    uses, turn = read(sys.stdin.read().splitlines())
    cell = min(CELL, (690 - LEFT) / len(uses))
    drawing = Drawing()
    drawing.text(LEFT, 18, "forward", 14, bold=True)
    drawing.text(LEFT + cell * turn + 4, 18, "backward", 14, bold=True)
    drawing.text(8, TOP - 6, "computing", 13)
    for column, (unit, slots, gathered) in enumerate(uses):
        x = LEFT + cell * column
        name = unit if unit != "embedding" else "emb." if column == 0 else "head"
        drawing.cell(x, TOP - 26, cell, HEIGHT, name, "white", 13)
        for slot in range(3):
            held = slots.get(slot)
            y = TOP + 16 + (HEIGHT + 6) * slot
            fill = "light" if held is None else "dark" if held == unit else "orange" if held in gathered else "blue"
            short = "" if held is None else {"embedding": "emb."}.get(held, held)
            if held in gathered:
                drawing.box(x, y, cell, HEIGHT, fill)
                drawing.box(x + 8, y + 6, cell - 16, HEIGHT - 12, "white", stroke="none")
                drawing.text(x + cell / 2, y + 20, short + "*", 13, "middle")
            else:
                drawing.cell(x, y, cell, HEIGHT, short, fill, 13)
    for slot in range(3):
        drawing.text(8, TOP + 36 + (HEIGHT + 6) * slot, f"slot {slot}", 13)
    drawing.path([(LEFT + cell * turn, 6), (LEFT + cell * turn, TOP + 22 + 3 * (HEIGHT + 6))], width=2)
    y = drawing.legend(TOP + 44 + 3 * (HEIGHT + 6), [("dark", "in use"), ("orange", "* being gathered"),
                                                     ("blue", "held"), ("light", "empty")])
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
