#!/usr/bin/env python3
"""Draws a ring all-reduce on four ranks that moves: in each round every rank sends one part to its right neighbour.

Rounds 1 to 3 are the reduce-scatter, rounds 4 to 6 the all-gather. Where nothing moves, round 1 is shown.
"""
from drawing import FILLS, Drawing

RANKS, ROUNDS, SECONDS = 4, 6, 12
NODE, PART, TOP = 118, 26, 70
CENTERS = [(150, TOP + 40), (510, TOP + 40), (510, TOP + 190), (150, TOP + 190)]  # clockwise
COLOURS = ["blue", "orange", "green", "violet"]


def shown(first, last):
    """An opacity of 1 from one round to another, counted from 0, and 0 at all other times."""
    times, values = ["0"], ["1" if first == 0 else "0"]
    if first:
        times, values = times + [f"{first / ROUNDS:.4f}"], values + ["1"]
    if last < ROUNDS:
        times, values = times + [f"{last / ROUNDS:.4f}"], values + ["0"]
    return (f'<animate attributeName="opacity" calcMode="discrete" values="{";".join(values)}" keyTimes="{";".join(times)}" '
            f'dur="{SECONDS}s" repeatCount="indefinite"/>')


def group(drawing, parts, first, last):
    """The shapes that are shown in these rounds only."""
    start = len(drawing.parts)
    parts()
    inside = drawing.parts[start:]
    drawing.parts[start:] = [f'<g opacity="{1 if first == 0 else 0}">', *inside, shown(first, last), "</g>"]


def message(drawing, round_, rank):
    """The part that a rank sends in a round, on its way."""
    part = (rank - round_) % RANKS
    (x, y), (to_x, to_y) = CENTERS[rank], CENTERS[(rank + 1) % RANKS]
    sums = min(round_ + 1, RANKS)
    text = f"{sums}" if round_ < RANKS - 1 else "all"
    where = (x + (to_x - x) * 0.5 - 17, y + (to_y - y) * 0.5 - 12)
    drawing.cell(where[0], where[1], 34, 24, text, COLOURS[part], 13)
    drawing.parts[-2:] = ["<g>", *drawing.parts[-2:],
                          f'<animateTransform attributeName="transform" type="translate" dur="{SECONDS / ROUNDS}s" '
                          f'repeatCount="indefinite" from="{-(to_x - x) * 0.3:.1f} {-(to_y - y) * 0.3:.1f}" '
                          f'to="{(to_x - x) * 0.3:.1f} {(to_y - y) * 0.3:.1f}"/>', "</g>"]


def main():
    drawing = Drawing()
    drawing.legend(20, [(colour, f"part {part}") for part, colour in enumerate(COLOURS)])
    for rank, (x, y) in enumerate(CENTERS):
        to_x, to_y = CENTERS[(rank + 1) % RANKS]
        drawing.path([(x, y), (to_x, to_y)], "#999999", 1.2, dash="4 4")
    for round_ in range(ROUNDS):
        half = "reduce-scatter" if round_ < RANKS - 1 else "all-gather"
        group(drawing, lambda: drawing.text(330, TOP + 108, f"round {round_ + 1}", 16, "middle", bold=True), round_, round_ + 1)
        group(drawing, lambda: drawing.text(330, TOP + 128, half, 13, "middle"), round_, round_ + 1)
        for rank in range(RANKS):
            group(drawing, lambda: message(drawing, round_, rank), round_, round_ + 1)
    for rank, (x, y) in enumerate(CENTERS):
        drawing.box(x - NODE / 2, y - 30, NODE, 60, "white", line=1.4)
        drawing.text(x, y - 12, f"rank {rank}", 13, "middle")
        for part in range(RANKS):
            left = x - NODE / 2 + 7 + PART * part
            drawing.cell(left, y - 2, PART, 24, 1, COLOURS[part], 12)
            # Part p arrives from the left neighbour in round r, counted from 0, where p = rank - 1 - r.
            for round_ in range(ROUNDS):
                if (rank - 1 - round_) % RANKS == part:
                    ranks = min(round_ + 2, RANKS)
                    later = next((r for r in range(round_ + 1, ROUNDS) if (rank - 1 - r) % RANKS == part), ROUNDS)
                    if round_ + 1 < ROUNDS:
                        group(drawing, lambda: drawing.cell(left, y - 2, PART, 24, ranks, COLOURS[part], 12), round_ + 1,
                              later + 1 if later < ROUNDS else ROUNDS)
    drawing.text(330, TOP + 244, "The number in a part: how many ranks have added to it.", 13, "middle")
    print(drawing.svg(TOP + 260))


if __name__ == "__main__":
    assert set(COLOURS) <= set(FILLS)
    main()
