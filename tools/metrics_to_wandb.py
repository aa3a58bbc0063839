#!/usr/bin/env python3
"""Sends the metrics of a run to Weights & Biases.

  tools/metrics_to_wandb.py runs/mine --project tessera
  WANDB_MODE=offline tools/metrics_to_wandb.py runs/mine      # writes a folder for `wandb sync`

Needs `pip install wandb`. Lines of steps become numbers under the names of metrics.jsonl, nested ones
such as peak_bytes.total with a dot. The configuration is the event `start`. Run it again while a run
goes on, or after it: the same --id sends the whole file once more.
"""
import argparse
import json
import pathlib
import signal
import sys


def lines_of(run):
    """The JSON objects of a run's metrics.jsonl. A running program may be writing the last line."""
    path = run / "metrics.jsonl"
    if not path.is_file():
        sys.exit(f"{path}: no such file; name the folder of a run (train.dir)")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            print(f"{path}:{number}: skipped, not a whole line", file=sys.stderr)


def flat(line):
    """The numbers of a line by name: {"loss": 2.5, "peak_bytes.total": 1024, "expert_load.0": 1.5}."""
    numbers = {}
    for name, value in line.items():
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            numbers.update({f"{name}.{key}": number for key, number in value.items()})
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[name] = value
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="the folder of a run")
    parser.add_argument("--project", default="tessera")
    parser.add_argument("--name", help="the folder's name by default")
    parser.add_argument("--id", help="replaces the run of this id")
    options = parser.parse_args()
    lines = list(lines_of(options.run))
    try:
        import wandb
    except ImportError:
        sys.exit("wandb is not installed: pip install wandb")
    starts = [line for line in lines if line.get("event") == "start"]
    run = wandb.init(project=options.project, name=options.name or options.run.resolve().name,
                     id=options.id, config=starts[-1] if starts else {})
    # After a rollback a step has a second line, which counts.
    steps = {line["step"]: line for line in lines if "event" not in line}
    for step in sorted(steps):
        run.log(flat(steps[step]), step=step)
    run.finish()
    print(f"{options.run}: {len(steps)} steps sent")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
