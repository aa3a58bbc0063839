#!/usr/bin/env python3
"""Reads a run's memory snapshots with PyTorch's own viewer.

  tests/tools/memory_viewer_check.py runs/mine            # Python with torch
  python3 -m torch.cuda._memory_viz trace_plot runs/mine/profile/memory-rank-0.pickle -o memory.html

By hand: CI has no PyTorch.
"""
import pathlib
import pickle
import sys

from torch.cuda import _memory_viz

profile = pathlib.Path(sys.argv[1]) / "profile"
files = sorted(profile.glob("memory-rank-*.pickle"))
assert files, f"{profile}: no snapshots"
for path in files:
    snapshot = pickle.loads(path.read_bytes())
    summary, trace = _memory_viz.segsum(snapshot), _memory_viz.trace(snapshot)
    page = _memory_viz.trace_plot(snapshot)
    live = sum(block["size"] for segment in snapshot["segments"] for block in segment["blocks"])
    names = {frame["name"] for entry in snapshot["device_traces"][0] for frame in entry["frames"]}
    assert live > 0 and "entries" in trace and "snapshot.pickle" in page and "forward" in names
    print(f"{path}: {len(snapshot['device_traces'][0])} entries, {live} bytes live, "
          f"{len(summary)} + {len(trace)} characters of text, page of {len(page)}")
