#!/usr/bin/env python3
"""Draws kernels on an H200 under its roofline. Their times are read from docs/gpu_results.md, for the shapes of llama3-8b.

A kernel that memory limits has its ratio to the copy there; one that tensor cores limit has its time. FLOPs and bytes are
counted here, each byte once.
"""
import math
import re
from pathlib import Path

from drawing import Drawing

RESULTS = Path(__file__).parents[1] / "gpu_results.md"
PEAK, MEMORY, COPY = 989e12, 4.8e12, 4.19e12  # FLOP/s, bytes/s of the data sheet, and of a copy there
TOKENS, WIDTH, MLP, HEADS, KEYS, HEAD, ROW = 8192, 4096, 14336, 32, 8, 128, 4096
# Limited by memory: FLOPs and bytes of an element.
MEMORY_BOUND = {"add": (1, 6), "rms norm forward": (4, 4), "swiglu forward": (6, 6), "rope forward": (3, 4), "adamw": (13, 28)}
# Limited by tensor cores: FLOPs and bytes of the whole.
COMPUTE_BOUND = {
    "matmul forward": (2 * TOKENS * WIDTH * MLP, 2 * (TOKENS * WIDTH + WIDTH * MLP + TOKENS * MLP)),
    "attention forward": (2 * TOKENS * ROW * HEADS * HEAD, 2 * TOKENS * HEAD * (2 * HEADS + 2 * KEYS)),  # causal: half
}
LEFT, RIGHT, TOP, BOTTOM = 76, 660, 30, 360
INTENSITY, RATE = (-1, 4), (11, 15.2)  # powers of ten


def x_of(intensity):
    return LEFT + (RIGHT - LEFT) * (math.log10(intensity) - INTENSITY[0]) / (INTENSITY[1] - INTENSITY[0])


def y_of(rate):
    return BOTTOM - (BOTTOM - TOP) * (math.log10(rate) - RATE[0]) / (RATE[1] - RATE[0])


def points():
    """Name, FLOPs per byte, FLOP/s."""
    text = RESULTS.read_text("utf-8").partition("### Kernels on the H200")[2].partition("###")[0]
    cells = {name: (float(time), float(ratio)) for name, time, ratio in
             re.findall(r"^\| ([^|]+) \| [^|]+ \|.*\| ([\d.]+) ms, \*\*([\d.]+)\*\* \|$", text, re.M)}
    for name, (operations, size) in MEMORY_BOUND.items():
        yield name, operations / size, cells[name][1] * COPY * operations / size
    for name, (operations, size) in COMPUTE_BOUND.items():
        yield name, operations / size, operations / (cells[name][0] * 1e-3)


def main():
    drawing = Drawing()
    for power in range(INTENSITY[0], INTENSITY[1] + 1):
        x = x_of(10.0**power)
        drawing.path([(x, TOP), (x, BOTTOM)], "#dddddd", 0.8)
        drawing.text(x, BOTTOM + 18, f"{10**power:,}" if power >= 0 else f"{10.0**power:g}", 12, "middle")
    for power in range(RATE[0], 16):
        drawing.path([(LEFT, y_of(10.0**power)), (RIGHT, y_of(10.0**power))], "#dddddd", 0.8)
        drawing.text(LEFT - 8, y_of(10.0**power) + 4, f"{10.0**(power - 12):g}", 12, "end")
    drawing.text(10, 18, "TFLOP/s", 12, bold=True)
    drawing.text((LEFT + RIGHT) / 2, BOTTOM + 40, "FLOPs per byte of memory", 13, "middle")
    corner = PEAK / MEMORY
    drawing.path([(x_of(0.1), y_of(0.1 * MEMORY)), (x_of(corner), y_of(PEAK)), (RIGHT, y_of(PEAK))], "#222222", 2.2)
    drawing.text(x_of(1.2), y_of(1.2 * MEMORY) - 26, "memory: 4.8 TB/s", 12, "end")
    drawing.text(RIGHT, y_of(PEAK) - 8, "tensor cores: 989 TFLOP/s", 12, "end")
    drawing.path([(x_of(corner), y_of(PEAK)), (x_of(corner), BOTTOM)], "#222222", 1, dash="3 3")
    drawing.text(x_of(corner) + 6, BOTTOM - 8, f"{corner:.0f} FLOPs per byte", 12)
    label = math.inf
    for name, intensity, rate in sorted(points(), key=lambda point: -point[2]):
        x, y = x_of(intensity), y_of(rate)
        share = rate / min(PEAK, MEMORY * intensity)
        drawing.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#c25b00" stroke="#222222"/>')
        label = y + 4 if math.isinf(label) or y > label + 11 else label + 15  # labels stand one below the other
        drawing.text(x + 10, label, f"{name.removesuffix(' forward')}: {share:.2f}", 12)
    drawing.path([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)])
    print(drawing.svg(BOTTOM + 54))


if __name__ == "__main__":
    main()
