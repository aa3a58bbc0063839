#!/usr/bin/env python3
"""Sends the metrics of a run to Weights & Biases or MLflow.

  tools/metrics_to.py wandb runs/mine --project tessera
  tools/metrics_to.py wandb runs/mine --follow            # while the run goes on, until it ends
  WANDB_MODE=offline tools/metrics_to.py wandb runs/mine  # writes a folder for `wandb sync`
  MLFLOW_TRACKING_URI=sqlite:///mlflow.db tools/metrics_to.py mlflow runs/mine

Needs `pip install wandb` or `pip install mlflow`. Lines of steps become numbers under the names of
metrics.jsonl, nested ones such as peak_bytes.total with a dot, and readings of watched steps as
watch.gradient_norm.h.0. The configuration is the event `start`. Without --follow a step that a rollback
repeated is sent once, with its last numbers.
"""
import argparse
import json
import math
import pathlib
import signal
import sys
import time

POLL_SECONDS = 2.0
LAST_EVENTS = {"end", "stop"}


def path_of(run):
    path = run / "metrics.jsonl"
    if not path.is_file():
        sys.exit(f"{path}: no such file; name the folder of a run (train.dir)")
    return path


def lines_of(run):
    """The JSON objects of a run's metrics.jsonl. A running program may be writing the last line."""
    path = path_of(run)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            print(f"{path}:{number}: skipped, not a whole line", file=sys.stderr)


def new_lines_of(run):
    """The same, and those that are written later, up to the end of the run."""
    with path_of(run).open(encoding="utf-8") as file:
        text = ""
        while True:
            text += file.readline()
            if not text.endswith("\n"):
                time.sleep(POLL_SECONDS)
                continue
            line, text = json.loads(text), ""
            yield line
            if line.get("event") in LAST_EVENTS:
                return


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


def readings(watch):
    """The numbers of an event `watch`, by name: {"watch.gradient_norm.h.0": 0.5}."""
    return {f"watch.{name}.{unit}": value
            for name, values in watch.items() if isinstance(values, list) and name != "units"
            for unit, value in zip(watch["units"], values) if value is not None}


def numbers_of(line):
    """None for an event that has no numbers of a step."""
    if line.get("event") == "watch":
        return readings(line)
    return None if "event" in line else flat(line)


class Wandb:
    def __init__(self, options, config):
        import wandb
        self.run = wandb.init(project=options.project, name=options.name, id=options.id,
                              config=config)

    def send(self, step, numbers):
        self.run.log(numbers, step=step)

    def finish(self):
        self.run.finish()


class Mlflow:
    def __init__(self, options, config):
        import mlflow
        self.client = mlflow
        mlflow.set_experiment(options.project)
        mlflow.start_run(run_name=options.name, run_id=options.id)
        mlflow.log_params({name: value for name, value in config.items()
                           if isinstance(value, (str, int, float))})

    def send(self, step, numbers):
        # MLflow takes finite numbers only.
        finite = {name: value for name, value in numbers.items()
                  if isinstance(value, (int, float)) and math.isfinite(value)}
        self.client.log_metrics(finite, step=step)

    def finish(self):
        self.client.end_run()


CLIENTS = {"wandb": Wandb, "mlflow": Mlflow}


def client_of(options, start):
    try:
        return CLIENTS[options.client](options, start)
    except ImportError:
        sys.exit(f"{options.client} is not installed: pip install {options.client}")


def follow(options):
    """Sends each line when it is written. Returns the number of steps."""
    lines = new_lines_of(options.run)
    client = client_of(options, next(lines))
    steps = set()
    for line in lines:
        numbers = numbers_of(line)
        if numbers is not None:
            client.send(line["step"], numbers)
            steps.add(line["step"])
    client.finish()
    return len(steps)


def send_all(options):
    lines = list(lines_of(options.run))
    starts = [line for line in lines if line.get("event") == "start"]
    client = client_of(options, starts[-1] if starts else {})
    # After a rollback a step has a second line, which counts.
    steps = {}
    for line in lines:
        numbers = numbers_of(line)
        if numbers is not None:
            steps.setdefault(line["step"], {}).update(numbers)
    for step in sorted(steps):
        client.send(step, steps[step])
    client.finish()
    return len(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("run", type=pathlib.Path, help="the folder of a run")
    parser.add_argument("--project", default="tessera", help="MLflow calls it an experiment")
    parser.add_argument("--name", help="the folder's name by default")
    parser.add_argument("--id", help="replaces the run of this id")
    parser.add_argument("--follow", action="store_true", help="send lines as the run writes them")
    options = parser.parse_args()
    options.name = options.name or options.run.resolve().name
    steps = follow(options) if options.follow else send_all(options)
    print(f"{options.run}: {steps} steps sent")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
