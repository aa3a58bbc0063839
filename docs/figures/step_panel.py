"""One training step of one rank, in the three lanes of timeline.py: for figures that compare steps."""
import timeline
from drawing import WIDTH

LEFT, RIGHT = 106, 10
BAR, ROW = 24, 9
FILLS = timeline.FILLS | {"copy": "yellow"}
LEGEND = [("blue", "forward"), ("green", "backward"), ("grey", "optimizer"), ("dark", "waiting for a collective"),
          ("yellow", "copying in or out"), ("light", "weights gathered"), ("orange", "gather parameters"),
          ("violet", "reduce gradients"), ("white", "norm")]


def legend(without=()):
    return [(fill, name) for fill, name in LEGEND if fill not in without]


class Axis:
    """Time from the begin of a step, as long as the longest step that it is for."""

    def __init__(self, microseconds):
        self.microseconds = microseconds

    def x(self, time):
        return LEFT + (WIDTH - LEFT - RIGHT) * time / self.microseconds

    def draw(self, drawing, y, height):
        """Ticks in milliseconds: numbers above y, lines from y down."""
        ticks = next(t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500) if self.microseconds / t <= 12000)
        drawing.text(LEFT - 8, y - 4, "ms", 11, "end")
        for tick in range(0, int(self.microseconds / 1000) + 1, ticks):
            x = self.x(1000 * tick)
            drawing.path([(x, y), (x, y + height)], stroke="#cccccc", width=0.7)
            drawing.text(x, y - 4, tick, 11, "middle")


class Step:
    """The last step of a rank of a trace."""

    def __init__(self, path, number=0):
        ranks = timeline.read(path)
        timeline.keep_last_step(ranks)
        self.rank = ranks[number]
        times = list(self.rank.times())
        self.begin, self.microseconds = min(times), max(times) - min(times)

    def draw(self, drawing, axis, y):
        """The lanes from y down. Returns the y below."""
        panel = Panel(drawing, axis, self.rank, self.begin, y)
        panel.compute()
        panel.gathered()
        panel.communication()
        return panel.y


class Panel:
    """The lanes of a step, drawn from y down."""

    def __init__(self, drawing, axis, rank, begin, y):
        self.drawing, self.axis, self.rank, self.begin, self.y = drawing, axis, rank, begin, y

    def x(self, time):
        return self.axis.x(time - self.begin)

    def span(self, begin, end, y, height, kind):
        self.drawing.box(self.x(begin), y, max(0.6, self.x(end) - self.x(begin)), height, FILLS[kind], line=0.4)

    def under(self, labels, y):
        """The texts of (begin, end, text), each below its box. Where two would touch, the wider box has
        its text."""
        placed = []
        for begin, end, text in sorted(labels, key=lambda label: label[0] - label[1]):
            half = 3.2 * len(text) + 2
            middle = min((self.x(begin) + self.x(end)) / 2, WIDTH - half)
            if all(abs(middle - other) >= half + other_half for other, other_half in placed):
                self.drawing.text(middle, y, text, 11, "middle")
                placed.append((middle, half))

    def compute(self):
        self.drawing.text(8, self.y + 16, "compute", 12)
        passes = [s for s in self.rank.compute if s[2] == "optimizer" or s[2].startswith(("forward ", "backward "))]
        for begin, end, name in passes:
            self.span(begin, end, self.y, BAR, name.partition(" ")[0])
        for begin, end, name in self.rank.compute:
            if name.startswith("copy "):
                self.span(begin, end, self.y, BAR, "copy")
            elif name == "exposed communication" and end - begin >= timeline.SHORTEST_WAIT:
                self.span(begin, end, self.y, BAR, "exposed")
        self.under([(begin, end, short(name)) for begin, end, name in passes], self.y + BAR + 11)
        self.y += BAR + 18

    def gathered(self):
        self.drawing.text(8, self.y + 9, "gathered", 12)
        intervals = list(timeline.open_intervals(self.rank.marks))
        for begin, end, _, row in intervals:
            self.span(begin, end, self.y + ROW * row, ROW - 1, "open")
        self.y += ROW * (1 + max(row for *_, row in intervals)) + 6

    def communication(self):
        self.drawing.text(8, self.y + 16, "communication", 12)
        for begin, end, name in self.rank.communication:
            self.span(begin, end, self.y, BAR, timeline.kind_of_collective(name))
        self.under([(begin, end, short(name)) for begin, end, name in self.rank.communication], self.y + BAR + 11)
        self.y += BAR + 16


def short(name):
    """A unit's name as a label: "forward h.0" is h.0, "forward embedding" is emb."""
    unit = name.partition(" ")[2] or name
    return {"embedding": "emb", "gradient norm": "norm", "optimizer": "update"}.get(unit, unit)


def draw_behind(drawing, axis, y, draw):
    """Calls draw(), which returns the y below what it draws, and puts the axis behind that."""
    at = len(drawing.parts)
    below = draw()
    lanes = drawing.parts[at:]
    del drawing.parts[at:]
    axis.draw(drawing, y, below - y)
    drawing.parts += lanes
    return below
