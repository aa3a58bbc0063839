#!/usr/bin/env python3
"""Draws who owns what, from the JSON that build/bin/partitions prints:

    build/bin/partitions | docs/figures/partitions.py > docs/figures/partitions.svg

A bar is a bucket's buffer, as long as it has elements. Colors are owners. What is paler is padding that
travels with an owner's part; what is white only keeps parameters aligned and never travels.
"""
import json
import sys

WIDTH, LEFT, RIGHT = 1100, 90, 20
BAR = 30
COLORS = ["#8fb8de", "#f2b872", "#a5cf9b", "#d79ac4"]


def text(x, y, content, size=12, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{content}</text>')


def box(x, y, width, color, opacity=1.0):
    return (f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR}" fill="{color}" '
            f'fill-opacity="{opacity}"/>')


def draw_bucket(bucket, y, scale):
    """A bar: the owners' pieces pale, over them what is really there, then outlines and names."""
    def x(element):
        return LEFT + scale * element
    parts = [text(8, y + 19, bucket["name"])]
    for piece in bucket["pieces"]:
        parts.append(box(x(piece["first"]), y, scale * piece["count"], COLORS[piece["rank"]], 0.3))
    for parameter in bucket["parameters"]:
        first, end = parameter["first"], parameter["first"] + parameter["count"]
        for piece in bucket["pieces"]:
            begin = max(first, piece["first"])
            count = min(end, piece["first"] + piece["count"]) - begin
            if count > 0:
                parts.append(box(x(begin), y, scale * count, COLORS[piece["rank"]]))
        parts.append(f'<rect x="{x(first):.2f}" y="{y}" width="{scale * parameter["count"]:.2f}" '
                     f'height="{BAR}" fill="none" stroke="#333" stroke-width="1.2"/>')
        label = f'{parameter["name"]} [{parameter["shape"]}]'
        parts.append(text(x(first), y + BAR + 12, label, 9))
    parts.append(f'<rect x="{LEFT}" y="{y}" width="{scale * bucket["elements"]:.2f}" height="{BAR}" '
                 'fill="none" stroke="#999" stroke-width="0.6"/>')
    parts.append(text(x(bucket["elements"]) + 6, y + 19, f'{bucket["elements"]}', 10))
    return parts


def main():
    partitions = json.load(sys.stdin)
    longest = max(b["elements"] for p in partitions for b in p["buckets"])
    scale = (WIDTH - LEFT - RIGHT - 40) / longest
    parts, y = [], 24
    parts.append(text(LEFT, y, "owner:", 12))
    for rank, color in enumerate(COLORS):
        parts.append(f'<rect x="{LEFT + 50 + 80 * rank}" y="{y - 11}" width="13" height="13" '
                     f'fill="{color}"/>')
        parts.append(text(LEFT + 68 + 80 * rank, y, f"rank {rank}"))
    parts.append(text(LEFT + 390, y, "pale: padding that travels; white: padding that does not"))
    y += 18
    for partition in partitions:
        y += 26
        owned = ", ".join(str(count) for count in partition["owned"])
        parts.append(text(8, y, partition["title"], 14, weight="bold"))
        parts.append(text(WIDTH - RIGHT, y, f"elements owned by ranks 0 to 3: {owned}", 12, "end"))
        y += 10
        for bucket in partition["buckets"]:
            parts += draw_bucket(bucket, y, scale)
            y += BAR + 22
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 6}" '
          'font-family="Helvetica, Arial, sans-serif" fill="#222">')
    print(f'<rect width="{WIDTH}" height="{y + 6}" fill="#ffffff"/>')
    print(*parts, "</svg>", sep="\n")


if __name__ == "__main__":
    main()
