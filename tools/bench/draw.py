#!/usr/bin/env python3
"""Draws the figures of bench_strategies: memory by category, and step times with their spread.

  build/bin/bench_strategies --model gpt2 --rows 'ddp; fsdp; fsdp dtype=bf16' --json figures.json
  tools/bench/draw.py figures.json --out figures.svg

A bar is the memory of the rank with the most, in MiB. Its categories are stacked; the activations are those at their
own peak. The line below a bar is the row's step time over that of the first row's step right before it: a dot at
the median, from the least to the most.
"""
import argparse
import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/figures"))
from drawing import WIDTH, Drawing

MIB = 2**20
PARTS = [("parameters", "dark"), ("gradients", "orange"), ("optimizer", "blue"), ("slots", "green"),
         ("activations", "light")]
LEFT, RIGHT = 10, WIDTH - 90
ROW = 74


def bytes_of(row):
    """The bytes of a row by category."""
    sizes = {name: row["memory"][name]["measured"] for name, _ in PARTS[:-1]}
    return sizes | {"activations": row["activations_bytes"]}


def draw(report):
    rows = report["strategies"]
    most_bytes = max(sum(bytes_of(row).values()) for row in rows)
    most_ratio = max(row["most_step_ratio"] for row in rows)
    drawing = Drawing()
    threads = report["threads"]
    drawing.text(LEFT, 22, report["model"], 15, bold=True)
    drawing.text(LEFT, 42, f"{report['ranks']} ranks on {report['device']}, {threads} thread{'s' * (threads != 1)} "
                 f"each; {report['steps']} steps; {report['host']}, {report['time']}", 12)
    top = drawing.legend(66, [(fill, name) for name, fill in PARTS]) + 14
    one = LEFT + (RIGHT - LEFT) / most_ratio
    bottom = top + ROW * len(rows)
    drawing.path([(one, top), (one, bottom - 20)], stroke="#888888", width=0.8, dash="3,3")
    drawing.text(one, bottom - 6, f"the time of {rows[0]['name']}", 11, "end" if one > WIDTH / 2 else "start")
    for row in rows:
        draw_row(drawing, row, top, (RIGHT - LEFT) / most_bytes, (RIGHT - LEFT) / most_ratio)
        top += ROW
    return drawing.svg(bottom + 6)


def draw_row(drawing, row, top, per_byte, per_ratio):
    sizes = bytes_of(row)
    drawing.text(LEFT, top, row["name"], 13, bold=True)
    drawing.text(WIDTH - 10, top, f"{row['step_ms']:.2f} ms, {row['step_ratio']:.3f}", 12, "end")
    x = LEFT
    for name, fill in PARTS:
        drawing.box(x, top + 6, sizes[name] * per_byte, 20, fill)
        x += sizes[name] * per_byte
    drawing.text(x + 6, top + 21, f"{sum(sizes.values()) / MIB:.1f} MiB", 12)
    y = top + 38
    least, middle, most = (LEFT + row[key] * per_ratio for key in ("least_step_ratio", "step_ratio",
                                                                   "most_step_ratio"))
    drawing.path([(least, y), (most, y)])
    for end in (least, most):
        drawing.path([(end, y - 4), (end, y + 4)])
    drawing.box(middle - 3, y - 3, 6, 6, "dark")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, help="the file of bench_strategies --json")
    parser.add_argument("--out", type=Path, required=True, help="the picture, SVG")
    options = parser.parse_args()
    try:
        report = json.loads(options.figures.read_text(encoding="utf-8"))
        if report.get("program") != "bench_strategies":
            sys.exit(f"{options.figures}: these are not figures of bench_strategies --json")
    except OSError as error:
        sys.exit(f"{options.figures}: {error.strerror}")
    except (ValueError, AttributeError):
        sys.exit(f"{options.figures}: expected the JSON of bench_strategies --json")
    options.out.write_text(draw(report) + "\n", encoding="utf-8")
    print(f"drawn in {options.out}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
