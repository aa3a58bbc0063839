#!/usr/bin/env python3
"""timeline.py TRACE.json OUT.svg: draws the last training step of a trace, all ranks below each other.

Without arguments it prints the picture of the kept trace, traces/fsdp.json.

TRACE.json is a Chrome trace as write_chrome_trace makes it (runtime/profiler.h). Each rank has three lanes:

  compute         the units' passes (spans "forward h.0", "backward h.0"), the optimizer, and dark the
                  spans "exposed communication" from 0.02 ms on, in which computation waits
  gathered        from the event "open h.0" to the event "close h.0"
  communication   the collectives (spans "all_gather h.0" on the track "communication"), each with a
                  line from the event "gather h.0" or "reduce h.0" that issued it
"""
import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from drawing import paint_of, patterns

KEPT = Path(__file__).parent / "traces/fsdp.json"

WIDTH = 700  # so that the letters are readable in a column of text
LEFT = 110  # for the lanes' names
SCALE = WIDTH - LEFT - 20  # pixels that the step takes
BAR, OPEN_BAR, GAP = 26, 9, 16

FILLS = {"forward": "blue", "backward": "green", "optimizer": "grey", "open": "light", "gather": "orange",
         "reduce": "violet", "other": "white", "exposed": "dark"}
LEGEND = [("forward", "forward"), ("backward", "backward"), ("optimizer", "optimizer"),
          ("exposed", "waiting for communication"), ("open", "weights gathered"),
          ("gather", "gather parameters"), ("reduce", "reduce gradients"),
          ("other", "norm, loss, barrier")]
SHORTEST_WAIT = 20  # microseconds; a box for a shorter wait would be wider than the wait
GATHERS = {"all_gather", "broadcast"}
# The collectives that an event issues, one or several, by the event's first word.
ISSUED = {"gather": GATHERS, "reduce": {"reduce_scatter", "all_reduce", "reduce"}}


class Rank:
    """One rank's events of a step, times in microseconds."""

    def __init__(self, number):
        self.number = number
        self.compute = []  # (begin, end, name)
        self.communication = []
        self.marks = []  # (time, name), in order

    def times(self):
        for begin, end, _ in self.compute + self.communication:
            yield from (begin, end)
        yield from (time for time, _ in self.marks)


def read(path):
    """The ranks of a trace, each with all its events in order of time."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ranks = {}
    for event in events:
        if event["ph"] == "M":
            continue
        rank = ranks.setdefault(event["pid"], Rank(event["pid"]))
        begin, name = event["ts"], event["name"]
        communicates = tracks[event["pid"], event["tid"]] == "communication"
        if event["ph"] == "X":
            spans = rank.communication if communicates else rank.compute
            spans.append((begin, begin + event["dur"], name))
        elif not communicates:
            rank.marks.append((begin, name))
    for rank in ranks.values():
        rank.compute.sort()
        rank.communication.sort()
        rank.marks.sort(key=lambda mark: mark[0])  # a predicted step has several at one time, in order
    return [ranks[number] for number in sorted(ranks)]


def keep_last_step(ranks):
    """Drops all events but those of the last step. A step ends where the first forward pass after the
    optimizer begins, which may be an evaluation's."""
    for rank in ranks:
        ends = [end for _, end, name in rank.compute if name == "optimizer"]
        forward = [begin for begin, _, name in rank.compute if name.startswith("forward ")]
        if not ends or not forward:
            sys.exit(f"timeline: rank {rank.number} of the trace has no step: spans 'forward UNIT' and "
                     "'optimizer'")
        first = next(begin for begin in forward if len(ends) < 2 or begin >= ends[-2])
        behind = next((begin for begin in forward if begin >= ends[-1]), float("inf"))
        for events in (rank.compute, rank.communication, rank.marks):
            events[:] = [event for event in events if first <= event[0] < behind]


def kind_of_collective(name):
    words = name.split(" ", 1)
    if len(words) == 1 or words[1] in ("gradient norm", "loss"):
        return "other"
    return "gather" if words[0] in GATHERS else "reduce"


def open_intervals(marks):
    """(begin, end, unit, row) of the gathered units; overlapping ones have different rows."""
    opened, rows = {}, []
    for time, name in marks:
        what, _, unit = name.partition(" ")
        if what == "open" and not unit.startswith("gradients "):
            row = rows.index(None) if None in rows else len(rows)
            rows[row:row + 1] = [unit]
            opened[unit] = (time, row)
        elif what == "close" and unit in opened:
            begin, row = opened.pop(unit)
            rows[row] = None
            yield begin, time, unit, row


def issues(rank):
    """(time of the mark, span of the first collective it issued) for every mark that issues any."""
    for time, name in rank.marks:
        what, _, unit = name.partition(" ")
        names = {f"{collective} {unit}" for collective in ISSUED.get(what, ())}
        later = [span for span in rank.communication if span[0] >= time and span[2] in names]
        if later:
            yield time, later[0]


def longest_work(begin, end, rank):
    """The longest part of a pass without a wait."""
    parts, last = [], begin
    for wait, over, name in rank.compute:
        if name == "exposed communication" and over - wait >= SHORTEST_WAIT and begin <= wait and over <= end:
            parts.append((last, wait))
            last = over
    return max([*parts, (last, end)], key=lambda part: part[1] - part[0])


class Drawing:
    def __init__(self, begin, end):
        self.begin, self.duration = begin, end - begin
        self.parts = []

    def x(self, time):
        return LEFT + SCALE * (time - self.begin) / self.duration

    def text(self, x, y, text, size=12, anchor="start", weight="normal", halo=False):
        ground = ' stroke="#ffffff" stroke-width="4" paint-order="stroke"' if halo else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
                          f'text-anchor="{anchor}"{ground}>{escape(text)}</text>')

    def box(self, begin, end, y, height, fill, title):
        x, width = self.x(begin), max(0.8, self.x(end) - self.x(begin))
        milliseconds = (end - begin) / 1000
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{paint_of(fill)}" '
            f'stroke="#555" stroke-width="0.4"><title>{escape(title)}: {milliseconds:.3f} ms</title>'
            '</rect>')

    def label(self, begin, end, y, height, text):
        """Inside a box, if it fits."""
        if self.x(end) - self.x(begin) > 6.6 * len(text) + 4:
            self.text((self.x(begin) + self.x(end)) / 2, y + height / 2 + 4, text, 11, "middle", halo=True)

    def line(self, x1, y1, x2, y2, color, width=0.8):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{color}" stroke-width="{width}"/>')

    def svg(self, height):
        return "\n".join(
            [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
             'font-family="Helvetica, Arial, sans-serif" fill="#222">',
             "<defs>", *patterns(), "</defs>",
             f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>', *self.parts, "</svg>"])


def draw_axis(drawing, y, height):
    """Time in milliseconds, about ten ticks."""
    milliseconds = drawing.duration / 1000
    tick = next(t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e9)
                if milliseconds / t <= 12)
    for i in range(int(milliseconds / tick) + 1):
        x = drawing.x(drawing.begin + i * tick * 1000)
        drawing.line(x, y, x, y + height, "#dddddd")
        drawing.text(x, y - 4, f"{i * tick:g}", 10, "middle")
    drawing.text(LEFT - 12, y - 4, "ms", 10, "end")


def draw_legend(drawing, y):
    """Draws the legend from y down. Returns the y of its last line."""
    x = 8
    for kind, text in LEGEND:
        if x + 17 + 7 * len(text) > WIDTH:
            x, y = 8, y + 20
        drawing.parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" '
                             f'fill="{paint_of(FILLS[kind])}" stroke="#555" stroke-width="0.4"/>')
        drawing.text(x + 17, y, text, 12)
        x += 34 + 7 * len(text)
    return y


def short_name(name, first):
    """The unit of a pass. Tied weights: the embedding is also the head, in all passes but the first."""
    unit = name.partition(" ")[2] or name
    return ("emb." if first else "head") if unit == "embedding" else unit


def draw_rank(drawing, rank, y):
    """Draws a rank's lanes from y down. Returns the y below them."""
    drawing.text(8, y + 12, f"rank {rank.number}", 13, weight="bold")
    y += 18
    drawing.text(8, y + 17, "compute")
    passes = [span for span in rank.compute
              if span[2] == "optimizer" or span[2].startswith(("forward ", "backward "))]
    for begin, end, name in passes:
        drawing.box(begin, end, y, BAR, FILLS[name.partition(" ")[0]], name)
    for begin, end, name in rank.compute:
        if name == "exposed communication" and end - begin >= SHORTEST_WAIT:
            drawing.box(begin, end, y, BAR, FILLS["exposed"], name)
    for begin, end, name in passes:
        drawing.label(*longest_work(begin, end, rank), y, BAR, short_name(name, begin == passes[0][0]))
    issued_from = y + BAR
    y += BAR + 6
    intervals = list(open_intervals(rank.marks))
    if intervals:
        drawing.text(8, y + 12, "gathered")
    for begin, end, unit, row in intervals:
        drawing.box(begin, end, y + row * OPEN_BAR, OPEN_BAR - 1, FILLS["open"], "open " + unit)
    y += OPEN_BAR * (1 + max((row for *_, row in intervals), default=0)) + 8
    if not rank.communication:
        return y + GAP
    for time, (begin, _, name) in issues(rank):
        color = "#b06a00" if kind_of_collective(name) == "gather" else "#94387a"
        drawing.line(drawing.x(time), issued_from, drawing.x(begin), y, color)
    drawing.text(8, y + 17, "communication")
    labelled_to = 0.0
    for begin, end, name in rank.communication:
        drawing.box(begin, end, y, BAR, FILLS[kind_of_collective(name)], name)
        unit = name.partition(" ")[2]
        half = 3.1 * len(unit)
        middle = min((drawing.x(begin) + drawing.x(end)) / 2, WIDTH - half)
        if middle - half > labelled_to:
            drawing.text(middle, y + BAR + 11, unit, 10, "middle")
            labelled_to = middle + half
    return y + BAR + 12 + GAP


def main(arguments):
    if len(arguments) not in (0, 2):
        sys.exit("usage: timeline.py [TRACE.json OUT.svg]")
    ranks = read(arguments[0] if arguments else KEPT)
    keep_last_step(ranks)
    times = [time for rank in ranks for time in rank.times()]
    drawing = Drawing(min(times), max(times))
    top = y = draw_legend(drawing, 20) + 36
    axis_at = len(drawing.parts)  # behind everything else
    for rank in ranks:
        y = draw_rank(drawing, rank, y)
    bars = drawing.parts[axis_at:]
    del drawing.parts[axis_at:]
    draw_axis(drawing, top - 4, y - top)
    drawing.parts += bars
    picture = drawing.svg(y) + "\n"
    if arguments:
        Path(arguments[1]).write_text(picture, encoding="utf-8")
    else:
        print(picture, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
