#!/usr/bin/env python3
"""Draws one training step of rank 0 here and in PyTorch's FSDP2, from the traces in docs/figures/traces/.

The traces are measurements, so they are kept. These commands write new ones:

  build/bin/trace_step fsdp docs/figures/traces/fsdp.json
  tools/bench/torch_trace.py docs/figures/traces/fsdp2.json
  tools/bench/torch_trace.py docs/figures/traces/fsdp2_prefetch.json --prefetch

Each panel has a scale of its own.
"""
import pathlib

from drawing import Drawing
from step_panel import Axis, Step, draw_behind, legend

TRACES = pathlib.Path(__file__).parent / "traces"
PANELS = [("fsdp", "Tessera, fsdp"), ("fsdp2", "PyTorch, FSDP2 as it comes"),
          ("fsdp2_prefetch", "PyTorch, FSDP2 with asynchronous gathers, prefetched in forward")]


def main():
    drawing = Drawing()
    y = drawing.legend(20, legend()) + 10
    for file, title in PANELS:
        step = Step(TRACES / f"{file}.json")
        axis = Axis(step.microseconds)
        drawing.text(8, y, f"{title}: a step of {step.microseconds / 1000:.0f} ms", 13, bold=True)
        top = y + 22
        y = draw_behind(drawing, axis, top, lambda: step.draw(drawing, axis, top)) + 26
    print(drawing.svg(y - 12))


if __name__ == "__main__":
    main()
