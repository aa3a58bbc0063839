#!/usr/bin/env python3
"""Reads a run's event files with the real TensorBoard and compares them with metrics.jsonl.

  pip install tensorboard 'setuptools<81'
  tests/tools/tensorboard_check.py runs/mine

By hand: CI has no TensorBoard, and tensorboard_test.cpp reads the files with a parser of its own.
"""
import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = pathlib.Path(sys.argv[1])
accumulator = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
tags = accumulator.Tags()["scalars"]
steps = {}
for line in map(json.loads, (run / "metrics.jsonl").open(encoding="utf-8")):
    if "event" not in line:
        steps[line["step"]] = line
compared = 0
for tag in tags:
    group, name = tag.split("/")
    for event in accumulator.Scalars(tag):
        line = steps[event.step]
        if group == "memory":
            expected = line["peak_bytes"][name]
        elif name.startswith("layer_"):
            expected = line["expert_load"][int(name[len("layer_"):])]
        else:
            expected = line[name]
        as_float = struct.unpack("f", struct.pack("f", expected))[0]
        assert event.value == as_float, (tag, event, expected)
        compared += 1
assert {event.step for event in accumulator.Scalars("loss/loss")} == set(steps)
print(f"{run}: {len(tags)} curves, {compared} values as in metrics.jsonl")
