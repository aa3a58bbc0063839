#!/usr/bin/env python3
"""Draws a predicted step above the same step of a run, rank 0 on one axis of time.

The traces in docs/figures/traces/ are a measurement and a prediction from measured rates, so they are kept. These
commands write new ones, with data from tools/quickstart.sh:

  run=(examples/fsdp.yaml model.width=512 model.heads=8 data.batch_size=2 data.sequence_length=64 runtime.threads=1)
  build/bin/bench_step --model "${run[@]}" --fit here.json
  build/bin/bench_collectives --ranks 2 --threads 1 --fit here.json
  build/bin/tessera plan "${run[@]}" --machine here.json --trace docs/figures/traces/predicted.json
  build/bin/tessera train "${run[@]}" train.steps=100 train.profile=100 train.dir=runs/traced
  cp runs/traced/profile/trace.json docs/figures/traces/profiled.json
"""
import pathlib

from drawing import Drawing
from step_panel import Axis, Step, draw_behind, legend

TRACES = pathlib.Path(__file__).parent / "traces"
PANELS = [("predicted", "Predicted by tessera plan"), ("profiled", "Traced by tessera train")]


def main():
    drawing = Drawing()
    steps = [(Step(TRACES / f"{file}.json"), title) for file, title in PANELS]
    axis = Axis(max(step.microseconds for step, _ in steps))
    top = drawing.legend(20, legend(without=["yellow"])) + 14

    def panels():
        y = top + 16
        for step, title in steps:
            drawing.text(8, y, f"{title}: {step.microseconds / 1000:.1f} ms", 13, bold=True)
            y = step.draw(drawing, axis, y + 10) + 22
        return y - 22

    print(drawing.svg(draw_behind(drawing, axis, top, panels) + 12))


if __name__ == "__main__":
    main()
