#!/usr/bin/env python3
"""Draws the memory of a step by category, from the output of build/bin/step_memory over_time."""
import json
import sys

from drawing import Drawing

CATEGORIES = [("parameters", "dark"), ("gradients", "orange"), ("optimizer", "blue"), ("communication", "green"),
              ("activations", "light"), ("workspace", "violet")]
ORDER = ["parameters", "gradients", "optimizer", "activations", "communication", "workspace", "other"]  # runtime/category.h
LEFT, WIDTH, HEIGHT, TOP, GAP = 52, 636, 130, 62, 58


def main():
    runs = json.load(sys.stdin)
    most = max(sum(point) for run in runs for point in run["points"])
    scale = HEIGHT / most
    drawing = Drawing()
    drawing.legend(18, [(fill, name) for name, fill in CATEGORIES])
    for index, run in enumerate(runs):
        bottom = TOP + HEIGHT + (HEIGHT + GAP) * index
        points = run["points"]
        xs = [LEFT + WIDTH * i / (len(points) - 1) for i in range(len(points))]
        drawing.text(LEFT, bottom - HEIGHT - 10, run["title"], 14, bold=True)
        for gib in range(int(most / 2**30) + 1):
            y = bottom - scale * gib * 2**30
            drawing.path([(LEFT, y), (LEFT + WIDTH, y)], "#dddddd", 1)
            drawing.text(LEFT - 6, y + 4, f"{gib} GiB", 12, "end")
        below = [0.0] * len(points)
        for name, fill in CATEGORIES:
            above = [low + point[ORDER.index(name)] for low, point in zip(below, points)]
            drawing.area([(x, bottom - scale * v) for x, v in zip(xs, above)] +
                         [(x, bottom - scale * v) for x, v in reversed(list(zip(xs, below)))], fill)
            below = above
        peak = max(sum(point) for point in points)
        at = max(range(len(points)), key=lambda i: sum(points[i]))
        drawing.text(xs[at], bottom - scale * peak - 5, f"{peak / 2**30:.2f} GiB, in {run['peak in']}", 12, "middle")
        drawing.path([(xs[at], bottom), (xs[at], bottom + 6)])
        drawing.text((LEFT + xs[at]) / 2, bottom + 16, "forward", 12, "middle")
        drawing.text((LEFT + WIDTH + xs[at]) / 2, bottom + 16, "backward", 12, "middle")
    print(drawing.svg(TOP + (HEIGHT + GAP) * len(runs) - GAP + 26))


if __name__ == "__main__":
    main()
