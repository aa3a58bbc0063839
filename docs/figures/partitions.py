#!/usr/bin/env python3
"""Draws who owns what, from the JSON that build/bin/partitions prints:

    build/bin/partitions | docs/figures/partitions.py > docs/figures/partitions.svg

A bar is a bucket's buffer, as long as it has elements. Fills are owners. A paler fill is padding that travels
with an owner's part. White gaps only keep parameters aligned and never travel.
"""
import json
import sys

from drawing import WIDTH, Drawing

LEFT, BAR, LABEL = 88, 28, 14
OWNERS = ["blue", "orange", "dark", "violet"]
LETTER = 6.2  # the width of a letter of a parameter's name


def draw_names(drawing, bucket, x, y):
    """The names of the parameters below the bar, from left to right. A name that would touch the one before it goes to a
    second line."""
    ends = [0.0, 0.0]  # of the last name in each line
    for parameter in sorted(bucket["parameters"], key=lambda one: one["first"]):
        name = f'{parameter["name"]} [{parameter["shape"]}]'
        begin = min(x(parameter["first"]), WIDTH - 4 - LETTER * len(name))
        line = 0 if begin >= ends[0] else 1
        ends[line] = begin + LETTER * len(name) + 8
        drawing.text(begin, y + LABEL * (line + 1) - 2, name, 11)
    return y + LABEL * (2 if ends[1] else 1)


def draw_bucket(drawing, bucket, y, scale):
    """A bar: the owners' pieces pale, over them the parameters, then outlines and names. Returns the y below."""
    def x(element):
        return LEFT + scale * element
    drawing.text(8, y + 18, bucket["name"])
    for piece in bucket["pieces"]:
        drawing.band(x(piece["first"]), y, scale * piece["count"], BAR, OWNERS[piece["rank"]], opacity=0.3)
    for parameter in bucket["parameters"]:
        first, end = parameter["first"], parameter["first"] + parameter["count"]
        for piece in bucket["pieces"]:
            begin = max(first, piece["first"])
            count = min(end, piece["first"] + piece["count"]) - begin
            if count > 0:
                drawing.band(x(begin), y, scale * count, BAR, OWNERS[piece["rank"]])
        drawing.path([(x(first), y), (x(end), y), (x(end), y + BAR), (x(first), y + BAR), (x(first), y)])
    end = x(bucket["elements"])
    corners = [(LEFT, y), (end, y), (end, y + BAR), (LEFT, y + BAR), (LEFT, y)]
    drawing.path(corners, stroke="#999999", width=0.6)
    drawing.text(end + 5, y + 18, bucket["elements"], 11)
    return draw_names(drawing, bucket, x, y + BAR) + 8


def main():
    partitions = json.load(sys.stdin)
    longest = max(b["elements"] for p in partitions for b in p["buckets"])
    scale = (WIDTH - LEFT - 34) / longest
    drawing = Drawing()
    y = drawing.legend(20, [(fill, f"rank {rank}") for rank, fill in enumerate(OWNERS)])
    drawing.text(WIDTH - 8, 20, "pale: padding that travels; white: padding that does not", 12, "end")
    for partition in partitions:
        y += 22
        owned = ", ".join(str(count) for count in partition["owned"])
        drawing.text(8, y, partition["title"], 13, bold=True)
        drawing.text(WIDTH - 8, y, f"elements owned by ranks 0 to 3: {owned}", 12, "end")
        y += 9
        for bucket in partition["buckets"]:
            y = draw_bucket(drawing, bucket, y, scale)
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
