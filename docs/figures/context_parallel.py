#!/usr/bin/env python3
"""Draws causal attention over 8 pieces of a row on four ranks: neighbouring pieces, and one from each end of the row."""
from drawing import Drawing

PIECES, RANKS, CELL, LEFT, TOP, PANEL = 8, 4, 26, 74, 62, 338
FILLS = ["blue", "orange", "green", "violet"]


def panel(drawing, left, title, owner_of):
    drawing.text(left - 34, 20, title, 13, bold=True)
    work = [0] * RANKS
    for query in range(PIECES):
        owner = owner_of(query)
        drawing.text(left - 8, TOP + CELL * query + 18, f"rank {owner}", 12, "end")
        for key in range(PIECES):
            seen = key <= query
            drawing.box(left + CELL * key, TOP + CELL * query, CELL, CELL, FILLS[owner] if seen else "white")
            if seen and owner_of(key) == owner:
                drawing.parts.append(f'<circle cx="{left + CELL * (key + 0.5):.1f}" cy="{TOP + CELL * (query + 0.5):.1f}" r="3.5" '
                                     'fill="#222222"/>')
            work[owner] += (1 if key < query else 0.5) if seen else 0
    drawing.text(left + CELL * PIECES / 2, TOP - 10, "keys and values", 12, "middle")
    for rank, load in enumerate(work):
        y = TOP + CELL * PIECES + 14 + 18 * rank
        drawing.text(left - 8, y + 12, f"rank {rank}", 12, "end")
        drawing.box(left, y, 13 * load, 14, FILLS[rank])
        drawing.text(left + 13 * load + 6, y + 12, f"{load:g}", 12)


def main():
    drawing = Drawing()
    panel(drawing, LEFT, "neighbouring pieces", lambda piece: piece * RANKS // PIECES)
    panel(drawing, LEFT + PANEL, "one from each end", lambda piece: min(piece, PIECES - 1 - piece))
    y = TOP + CELL * PIECES + 106
    drawing.text(10, y, "Rows are queries. A dot: the keys are on the queries' own rank. All other keys are sent.", 12)
    drawing.text(10, y + 17, "Bars: the tiles that a rank computes. A tile on the diagonal is half work.", 12)
    print(drawing.svg(y + 30))


if __name__ == "__main__":
    main()
