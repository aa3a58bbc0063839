#!/usr/bin/env python3
"""Draws eight rows of a tile in shared memory, without and with the 128-byte swizzle, and the banks that chunk 0 is in."""
from drawing import Drawing

ROWS = PLACES = 8
CELL, HEIGHT, LEFT, TOP, PANEL = 32, 24, 62, 62, 330


def panel(drawing, left, title, place_of):
    drawing.text(left - 46, 20, title, 14, bold=True)
    used = [0] * PLACES
    for place in range(PLACES):
        drawing.text(left + CELL * (place + 0.5), TOP - 6, f"{4 * place}-{4 * place + 3}", 10, "middle")
    drawing.text(left - 8, TOP - 6, "banks", 11, "end")
    for row in range(ROWS):
        drawing.text(left - 8, TOP + HEIGHT * row + 17, f"row {row}", 12, "end")
        for chunk in range(PLACES):
            place = place_of(row, chunk)
            used[place] += chunk == 0
            drawing.cell(left + CELL * place, TOP + HEIGHT * row, CELL, HEIGHT, chunk, "orange" if chunk == 0 else "white", 13)
    turns = max(used)
    drawing.text(left, TOP + HEIGHT * ROWS + 22, f"chunk 0 of eight rows: {turns} turn{'s' if turns > 1 else ''}", 13, bold=True)


def main():
    drawing = Drawing()
    panel(drawing, LEFT, "chunk c at place c", lambda row, chunk: chunk)
    panel(drawing, LEFT + PANEL, "chunk c of row r at place c XOR r", lambda row, chunk: chunk ^ row)
    drawing.text(16, TOP + HEIGHT * ROWS + 48, "A chunk is 16 bytes, four banks. A bank serves one row in a turn.", 13)
    print(drawing.svg(TOP + HEIGHT * ROWS + 62))


if __name__ == "__main__":
    main()
