#!/usr/bin/env python3
"""Trains small models under every cut, and fails if a loss, a gradient norm or a weight differs in any bit.

  tests/tools/equal_cuts.py build/bin/tessera [--steps 20] [--presets gpt2-mini ...] [--set key=value ...]

With sharding.grid=8, 1, 2, 4 and 8 tensor ranks, as many context ranks, and both together are compared with one rank.
2 and 4 stages of a pipeline are compared with one stage that has the same micro-batches, under every schedule and
without a grid. Tied embeddings need zero_bubble to have one micro-batch. Prints a line for each run. The suite has
short forms of these comparisons; this takes minutes.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

PRESETS = ["gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini"]
GRID = {"sharding.grid": 8}
SCHEDULES = {"gpipe": 4, "1f1b": 4, "interleaved": 4, "zero_bubble": 1}  # and their micro-batches


def train(options, folder, preset, settings):
    """The losses and norms of all steps, and a digest of the weights."""
    run = folder / "run"
    settings = {
        "model.preset": preset, "model.heads": 8, "data.train": "synthetic:zipf", "data.batch_size": 4,
        "data.sequence_length": 64, "optimizer.warmup_steps": 2, "runtime.device": "cpu", "runtime.threads": 1,
        "sharding.strategy": "ddp", "train.dir": run, "train.steps": options.steps, "train.log_every": 1} | settings
    arguments = [f"{key}={value}" for key, value in settings.items()] + options.set
    done = subprocess.run([options.program, "train", folder / "run.yaml", *arguments],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{preset} {arguments}: {done.stderr}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    numbers = [(line["loss"], line["gradient_norm"]) for line in lines if "gradient_norm" in line]
    assert len(numbers) == options.steps
    weights = (run / "model/model.safetensors").read_bytes()
    return numbers, hashlib.sha256(weights).hexdigest()[:16]


def comparisons():
    """(name, settings) of one rank's run, and those of the runs that have its bits."""
    cuts = []
    for tensor, context in [(2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (4, 2)]:
        cuts.append((f"tensor {tensor} x context {context}",
                     GRID | {"sharding.tensor_parallel": tensor, "sharding.context_parallel": context,
                             "runtime.ranks": tensor * context}))
    yield ("one rank, a grid of 8", GRID | {"runtime.ranks": 1}), cuts
    for micro_batches in sorted(set(SCHEDULES.values())):
        batch = {"data.accumulation_steps": micro_batches}
        stages = [(f"pipeline {ranks}, {schedule}",
                   batch | {"sharding.pipeline_parallel": ranks, "sharding.pipeline_schedule": schedule,
                            "sharding.pipeline_chunks": 2 if (schedule, ranks) == ("interleaved", 2) else 1,
                            "runtime.ranks": ranks})
                  for schedule, count in SCHEDULES.items() if count == micro_batches for ranks in (2, 4)]
        yield (f"one rank, {micro_batches} micro-batches", batch | {"runtime.ranks": 1}), stages


def difference(found, expected):
    for step, (a, b) in enumerate(zip(found[0], expected[0]), 1):
        if a != b:
            return f"step {step}: loss and norm {a}, not {b}"
    return "" if found[1] == expected[1] else "the weights differ"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--set", nargs="*", default=[])
    options = parser.parse_args()
    runs = wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run.yaml").write_text("{}\n")
        for preset in options.presets:
            for (one, settings), cuts in comparisons():
                expected = train(options, folder, preset, settings)
                print(f"{preset}, {one}: loss {expected[0][0][0]} -> {expected[0][-1][0]}, weights {expected[1]}",
                      flush=True)
                for cut, settings in cuts:
                    differs = difference(train(options, folder, preset, settings), expected)
                    print(f"  {cut}: {differs or 'equal bits'}", flush=True)
                    runs += 1
                    wrong += bool(differs)
    print(f"{runs} runs of {options.steps} steps, {wrong} that differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
