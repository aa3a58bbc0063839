#!/usr/bin/env python3
"""Trains a list of runs one after another, and compares them with one of them.

  tools/experiments/experiments.py tools/experiments/strategies.yaml
  tools/experiments/experiments.py LIST --dry-run                       # prints the commands
  tools/experiments/experiments.py LIST --launcher "mpirun -np 2"       # ranks are processes
  tools/experiments/experiments.py LIST --summary                       # compares the runs there are

A list is YAML (needs `pip install pyyaml`) or JSON:

  config: examples/fsdp.yaml          # of every run
  dir: runs/strategies                # each run has a folder of its name in it
  set: {train.steps: 100}             # keys of every run
  baseline: ddp                       # the run that the others are compared with; the first by default
  runs:
    ddp: {sharding.strategy: ddp}     # keys of this run
    fsdp: {sharding.strategy: fsdp}

Ctrl-C stops the list after the run's step and its checkpoint. Run it again to go on: a complete run is not
repeated, and one that was stopped continues. A run that fails does not stop those after it. The comparison is printed, and written to
summary.txt, summary.json and report.html in the folder `dir`.

The runs follow one another, so their times are those of different minutes. bench_strategies compares
times step by step.
"""
import argparse
import json
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys

KEYS = {"config", "dir", "set", "baseline", "runs"}
SETTINGS = "experiment.json"
MIB = 2**20


def read_list(path):
    """The list, checked. Ends the program with one line if it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    try:
        entries = json.loads(text) if path.suffix == ".json" else parse_yaml(path, text)
    except ValueError as error:
        sys.exit(f"{path}: {' '.join(str(error).split())}")
    problem = problem_of(entries)
    if problem:
        sys.exit(f"{path}: {problem}")
    entries.setdefault("set", {})
    entries.setdefault("baseline", next(iter(entries["runs"])))
    return entries


def parse_yaml(path, text):
    try:
        import yaml
    except ImportError:
        sys.exit(f"{path}: reading YAML needs pyyaml: pip install pyyaml, or write the list as .json")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from error


def problem_of(entries):
    """What is wrong with a list; empty if it is good."""
    if not isinstance(entries, dict):
        return "expected a list of runs with the entries config, dir and runs"
    unknown = sorted(set(map(str, entries)) - KEYS)
    if unknown:
        return f"unknown entry '{unknown[0]}'; the entries are {', '.join(sorted(KEYS))}"
    for key in ("config", "dir"):
        if not isinstance(entries.get(key), str) or not entries[key]:
            return f"'{key}' is missing, or is no text"
    runs = entries.get("runs")
    if not isinstance(runs, dict) or not runs:
        return "'runs' has no runs"
    for name, keys in {"set": entries.get("set", {}), **runs}.items():
        if not isinstance(keys, dict):
            return f"'{name}': expected keys and values, such as {{train.steps: 100}}"
        for key, value in keys.items():
            if isinstance(value, (dict, list)) or "." not in str(key) or key == "train.dir":
                return f"'{name}': '{key}' is no key with one value, such as train.steps: 100"
    for name in runs:
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name:
            return f"'{name}' cannot be the name of a folder"
    baseline = entries.get("baseline")
    if baseline is not None and baseline not in runs:
        return f"the baseline '{baseline}' is no run of the list"
    return ""


def text_of(value):
    """A value as tessera reads it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(entries, name, launcher):
    keys = {**entries["set"], **entries["runs"][name]}
    if launcher:
        keys["runtime.ranks"] = 0  # the launcher's number
    keys["train.dir"] = str(pathlib.Path(entries["dir"]) / name)
    return {key: text_of(value) for key, value in keys.items()}


def command_of(entries, settings, options):
    return [*shlex.split(options.launcher), options.tessera, "train", entries["config"],
            *(f"{key}={value}" for key, value in settings.items())]


def lines_of(run):
    """The whole lines of a run's metrics.jsonl."""
    path = run / "metrics.jsonl"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def is_complete(run):
    starts_and_ends = [line["event"] for line in lines_of(run) if line.get("event") in ("start", "end")]
    return bool(starts_and_ends) and starts_and_ends[-1] == "end"


def train(entries, name, options):
    """Runs it, unless it is complete. The last line of its errors, or an empty text."""
    settings = settings_of(entries, name, options.launcher)
    command = command_of(entries, settings, options)
    if options.dry_run:
        print(shlex.join(command))
        return ""
    run = pathlib.Path(settings["train.dir"])
    kept = run / SETTINGS
    now = {"config": entries["config"], "settings": settings}
    if is_complete(run):
        if not kept.is_file() or json.loads(kept.read_text(encoding="utf-8")) != now:
            return f"{run} is complete, with other settings than the list's; move it away"
        print(f"{name}: complete", flush=True)
        return ""
    print(f"{name}: {shlex.join(command)}", flush=True)
    done = subprocess.run(command, stdout=sys.stdout, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"status {done.returncode}"
    if is_complete(run):
        kept.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        return ""
    return "it was stopped; run the list again to go on"


def figures_of(run):
    """The figures of a run by name; None where it has none."""
    steps = [line for line in lines_of(run) if "event" not in line]
    if not steps:
        return None
    timed = steps[1:] or steps  # the first line fills caches
    losses = [line["val_loss"] for line in steps if line.get("val_loss") is not None]
    return {"step": steps[-1]["step"],
            "loss": steps[-1]["loss"],
            "val_loss": min(losses, default=None),
            "step_ms": statistics.median(line["step_ms"] for line in timed),
            "tokens_per_second": statistics.median(line["tokens_per_second"] for line in timed),
            "peak_bytes": max(line["peak_bytes"]["total"] for line in steps),
            "bytes_sent": statistics.median(line["bytes_sent"] for line in timed)}


def ratio(figures, base, key):
    if figures is None or base is None or not base[key]:
        return "-"
    return f"{figures[key] / base[key]:.3f}"


def summary_of(entries, figures, problems):
    base = figures[entries["baseline"]]
    width = max(len(name) for name in [*figures, "run"])
    heads = ["step", "loss", "best val", "ms/step", "ratio", "tokens/s", "peak MiB", "ratio", "sent MiB"]
    rows = [f"{'run':<{width}}" + "".join(f" {head:>9}" for head in heads)]
    for name, one in figures.items():
        if one is None:
            rows.append(f"{name:<{width}}  {problems.get(name) or 'not run yet'}")
            continue
        best = "-" if one["val_loss"] is None else f"{one['val_loss']:.4f}"
        cells = [one["step"], "-" if one["loss"] is None else f"{one['loss']:.4f}", best,
                 f"{one['step_ms']:.2f}", ratio(one, base, "step_ms"), f"{one['tokens_per_second']:.0f}",
                 f"{one['peak_bytes'] / MIB:.1f}", ratio(one, base, "peak_bytes"),
                 f"{one['bytes_sent'] / MIB:.2f}"]
        rows.append(f"{name:<{width}}" + "".join(f" {cell:>9}" for cell in cells))
        if problems.get(name):
            rows.append(f"{'':<{width}}  {problems[name]}")
    rows += ["", f"The ratios are to {entries['baseline']}. Times are medians of runs that followed one another."]
    return "\n".join(rows) + "\n"


def summarize(entries, problems, options):
    folder = pathlib.Path(entries["dir"])
    figures = {name: figures_of(folder / name) for name in entries["runs"]}
    text = summary_of(entries, figures, problems)
    print("\n" + text, end="")
    if not any(figures.values()):
        return
    (folder / "summary.txt").write_text(text, encoding="utf-8")
    report = {"baseline": entries["baseline"], "runs": figures, "problems": problems}
    (folder / "summary.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    runs = [str(folder / name) for name, one in figures.items() if one]
    page = folder / "report.html"
    done = subprocess.run([options.tessera, "report", *runs, "--out", str(page)], stdout=subprocess.DEVNULL,
                          check=False)
    if done.returncode == 0:
        print(f"drawn in {page}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=pathlib.Path)
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument("--summary", action="store_true", help="compare the runs there are, run nothing")
    parser.add_argument("--launcher", default="", help='words before each command, such as "mpirun -np 2"')
    parser.add_argument("--tessera", default="build/bin/tessera")
    options = parser.parse_args()
    entries = read_list(options.list)
    problems = {}
    stopped = []
    # A handler of this program's own is not passed on to a run, which has its own, too.
    signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
    for name in [] if options.summary else entries["runs"]:
        if stopped:
            break
        problem = train(entries, name, options)
        if problem:
            problems[name] = problem
            print(f"{name}: {problem}", flush=True)
    if not options.dry_run:
        summarize(entries, problems, options)
    return 1 if problems or stopped else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    sys.exit(main())
