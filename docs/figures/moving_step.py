#!/usr/bin/env python3
"""Draws the step of traces/fsdp.json as timeline.py does, and lets time pass over it.

A bright copy of the lanes is cut off at the present, and a pale copy shows what is to come. The animation is SMIL,
which also moves in an <img>. Where it does not, the whole step is bright.
"""
import timeline

SECONDS = 14  # of one repetition
PAUSE = 2  # seconds at the end, in which the whole step is bright
PALE = 0.28


def animate(attribute, first, last):
    """An animation from the first value to the last, which then stays for the pause."""
    ends = SECONDS - PAUSE
    return (f'<animate attributeName="{attribute}" values="{first:.1f};{last:.1f};{last:.1f}" '
            f'keyTimes="0;{ends / SECONDS:.3f};1" dur="{SECONDS}s" repeatCount="indefinite"/>')


def main():
    ranks = timeline.read(timeline.KEPT)
    timeline.keep_last_step(ranks)
    times = [time for rank in ranks for time in rank.times()]
    drawing = timeline.Drawing(min(times), max(times))
    top = y = timeline.draw_legend(drawing, 20) + 36
    fixed = len(drawing.parts)
    for rank in ranks:
        y = timeline.draw_rank(drawing, rank, y)
    lanes = drawing.parts[fixed:]
    del drawing.parts[fixed:]
    timeline.draw_axis(drawing, top - 4, y - top)
    left, right, height = drawing.x(drawing.begin), drawing.x(max(times)), y - top
    drawing.parts += [
        '<clipPath id="past">',
        f'<rect x="0" y="{top:.1f}" width="{timeline.WIDTH}" height="{height:.1f}">',
        animate("width", left, timeline.WIDTH), "</rect>", "</clipPath>",
        f'<g id="lanes" opacity="{PALE}">', *lanes, "</g>",
        '<g clip-path="url(#past)">', *lanes, "</g>",
        f'<line x1="{right:.1f}" y1="{top - 4:.1f}" x2="{right:.1f}" y2="{y - timeline.GAP:.1f}" stroke="#c02020" '
        'stroke-width="1.5">', animate("x1", left, right), animate("x2", left, right), "</line>"]
    print(drawing.svg(y))


if __name__ == "__main__":
    main()
