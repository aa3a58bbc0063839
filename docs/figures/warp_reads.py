#!/usr/bin/env python3
"""Draws the sectors that one load of a warp touches, with a thread per row and with a warp per row, as
examples/kernel_ladder/norm/gpu_1_thread_per_row.cu and gpu_2_warp_per_row.cu read x."""
from drawing import Drawing

ROWS, COLUMNS, SECTOR = 4, 32, 8  # as drawn: rows of x, their first columns, floats of a sector
LEFT, CELL_WIDTH, CELL_HEIGHT = 92, 18, 20


def panel(drawing, top, title, lane_at):
    """Rows of x. `lane_at(row, column)` is the lane that reads there, or None."""
    drawing.text(10, top, title, 14, bold=True)
    touched = {(row, column // SECTOR) for row in range(ROWS) for column in range(COLUMNS)
               if lane_at(row, column) is not None}
    for row in range(ROWS):
        y = top + 16 + (CELL_HEIGHT + 6) * row
        drawing.text(LEFT - 8, y + 15, f"row {row}", 12, "end")
        for column in range(COLUMNS):
            x = LEFT + CELL_WIDTH * column
            lane = lane_at(row, column)
            fill = "blue" if lane is not None else "yellow" if (row, column // SECTOR) in touched else "white"
            drawing.box(x, y, CELL_WIDTH, CELL_HEIGHT, fill, line=0.4)
            if lane is not None:
                drawing.text(x + CELL_WIDTH / 2, y + 14, lane, 11, "middle")
        for sector in range(COLUMNS // SECTOR):
            drawing.path([(LEFT + CELL_WIDTH * SECTOR * sector, y - 2),
                          (LEFT + CELL_WIDTH * SECTOR * sector, y + CELL_HEIGHT + 2)], width=2)
        drawing.text(LEFT + CELL_WIDTH * COLUMNS + 6, y + 15, "...", 12)
    return top + 16 + (CELL_HEIGHT + 6) * ROWS + 16


def main():
    drawing = Drawing()
    y = panel(drawing, 22, "A thread per row: 32 lanes touch 32 sectors (4 rows of 32 are drawn)",
              lambda row, column: row if column == 0 else None)
    y = panel(drawing, y + 16, "A warp per row: 32 lanes touch 4 sectors",
              lambda row, column: column if row == 0 else None)
    y = drawing.legend(y + 6, [("blue", "read, with the lane's number"),
                               ("yellow", "moved with it and not read"), ("white", "not touched")])
    print(drawing.svg(y + 4))


if __name__ == "__main__":
    main()
