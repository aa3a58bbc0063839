"""What the book's figures share: an SVG of 700 units, its shapes, and fills that differ in greyscale."""
from xml.sax.saxutils import escape

WIDTH = 700
INK = "#222222"
# Fills by name: a colour, and lines on it or None. Their greys differ, or their lines do.
FILLS = {
    "white": ("#ffffff", None), "light": ("#e9edf2", None), "blue": ("#bcd7ee", None),
    "orange": ("#f0a94e", "right"), "green": ("#8cc084", "left"), "dark": ("#33587d", None),
    "violet": ("#c9a5cf", "cross"), "yellow": ("#fbe9a6", "dots"), "grey": ("#a3a8ae", None),
}
LINES = {"right": "M0,8 L8,0", "left": "M0,0 L8,8", "cross": "M0,4 L8,4 M4,0 L4,8", "dots": "M3,3 h2"}


def paint_of(fill):
    """A fill by its name, as an attribute has it."""
    colour, lines = FILLS[fill]
    return colour if lines is None else f"url(#{fill})"


def patterns():
    """The definitions of the fills with lines."""
    return [f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<rect width="8" height="8" fill="{colour}"/>'
            f'<path d="{LINES[lines]}" stroke="#444444" stroke-width="1" stroke-opacity="0.55"/></pattern>'
            for name, (colour, lines) in FILLS.items() if lines]


class Drawing:
    """Shapes from top to bottom. `svg` makes the file's text."""

    def __init__(self):
        self.parts = []

    def text(self, x, y, content, size=13, anchor="start", bold=False, fill=INK):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{fill}"{weight}>{escape(str(content))}</text>')

    def box(self, x, y, width, height, fill="white", stroke="#555555", line=0.8):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'fill="{paint_of(fill)}" stroke="{stroke}" stroke-width="{line}"/>')

    def band(self, x, y, width, height, fill, opacity=1.0):
        """A box without an outline."""
        self.parts.append(f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" '
                          f'fill="{paint_of(fill)}" fill-opacity="{opacity}"/>')

    def cell(self, x, y, width, height, content, fill="white", size=13):
        """A box with a text in its middle, on a plain ground that can be read."""
        self.box(x, y, width, height, fill)
        ink = "#ffffff" if fill == "dark" else INK
        self.text(x + width / 2, y + height / 2 + size * 0.36, content, size, "middle", fill=ink)

    def path(self, points, stroke=INK, width=1.2, fill="none", dash=None):
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{shape}" fill="{fill}" stroke="{stroke}" '
                          f'stroke-width="{width}"{dashes}/>')

    def area(self, points, fill):
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon points="{shape}" fill="{paint_of(fill)}" stroke="#555555" stroke-width="0.4"/>')

    def arrow(self, x1, y1, x2, y2, stroke=INK, width=1.4):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                          f'stroke-width="{width}" marker-end="url(#head)"/>')

    def legend(self, y, entries, left=10):
        """Fills and their names, in lines as wide as the figure. Returns the y below."""
        x = left
        for fill, name in entries:
            length = 30 + 6.7 * len(name)
            if x + length > WIDTH:
                x, y = left, y + 22
            self.box(x, y - 11, 14, 14, fill)
            self.text(x + 20, y, name, 12)
            x += length + 8
        return y + 16

    def svg(self, height):
        head = ('<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker>')
        return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
                          'font-family="Helvetica, Arial, sans-serif">',
                          "<defs>", *patterns(), head, "</defs>",
                          f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>', *self.parts, "</svg>"])
