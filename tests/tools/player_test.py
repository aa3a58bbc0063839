#!/usr/bin/env python3
"""player_test.py TESSERA: the step player times a step as the program's clock does, and finds the races of removed waits.

Random steps of all strategies: the player's events equal those of `tessera plan`, and no step races. Then each wait is
removed. Needs node; without it only the lines of the rungs are checked.
"""
import json
import math
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL, DRIVER = ROOT / "tools/site/player/model.js", ROOT / "tests/tools/player_test.js"
sys.path.insert(0, str(ROOT / "tools/site/player"))
import player_code  # noqa: E402: the path comes first

STRATEGIES = ["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"]
COUNT = 50
SKIPPED = 77

# The race that a step without one of its waits has, by strategy: some wait must lead to each of these.
RACES = {
    "ddp": ["gradients of h.1 are sent before they are complete"],
    "zero1": ["gradients of h.1 are sent before they are complete", "values of embedding are sent while they are being updated"],
    "zero2": ["backward writes gradients of h.0 over those of h.2, which are being sent"],
    "zero3": ["computation reads values of h.1 that have not arrived yet", "values of h.2 arrive over those of h.0, which are in use"],
    "fsdp": ["computation reads values of h.1 that have not arrived yet", "values of h.2 arrive over those of h.0, which are in use"],
    "hsdp": ["computation reads values of h.1 that have not arrived yet", "values of embedding are sent while they are being updated"],
}


def random_arguments(draw, strategy):
    """A step of a small model with other options each time."""
    keys = {"sharding.strategy": strategy, "model.layers": draw.choice([2, 3, 4, 5]), "data.rows_per_rank": draw.choice([2, 4]),
            "data.sequence_length": draw.choice([64, 256, 1024]), "data.accumulation_steps": draw.choice([1, 1, 2]),
            "runtime.compute_dtype": draw.choice(["f32", "bf16"]),
            "sharding.activation_checkpointing": draw.choice(["none", "full"]),
            "sharding.buckets": draw.choice(["unit", "8000000"])}
    if strategy in ("zero3", "fsdp", "hsdp"):
        keys |= {"sharding.live_gathers": draw.choice([1, 2, 3]), "sharding.prefetch": draw.choice(["both", "forward", "none"]),
                 "sharding.reshard_after_forward": draw.choice(["true", "false"])}
    return ["gpt2", "--ranks", str(draw.choice([2, 4, 8])), "--machine", draw.choice(["a100", "h100"]),
            *(f"{key}={value}" for key, value in keys.items())]


def differences(events, trace):
    """The first event that differs from the trace's."""
    if len(events) != len(trace):
        return [f"{len(events)} events instead of {len(trace)}"]
    for ours, theirs in zip(events, trace):
        numbers = [(ours["begin"], theirs["ts"]), (ours["end"] - ours["begin"], theirs.get("dur", 0.0))]
        if ours["name"] != theirs["name"] or not all(math.isclose(1e6 * a, b, rel_tol=1e-9, abs_tol=1e-6) for a, b in numbers):
            return [f"{ours} is not {theirs}"]
    return []


def problems_of(program):
    draw = random.Random(1)
    cases = [(strategy, ["gpt2", "--ranks", "4", "--machine", "h100", f"sharding.strategy={strategy}", "model.layers=4"])
             for strategy in STRATEGIES]
    cases += [(strategy, random_arguments(draw, strategy)) for strategy in (STRATEGIES[i % 6] for i in range(COUNT))]
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / f"{number}.json" for number in range(len(cases))]
        for file, (_, arguments) in zip(files, cases):
            subprocess.run([program, "plan", *arguments, "--trace", file], check=True, stdout=subprocess.DEVNULL)
        run = subprocess.run(["node", DRIVER, MODEL, *files], capture_output=True, text=True, check=True)
        for (strategy, arguments), file, line in zip(cases, files, run.stdout.splitlines(), strict=True):
            played, name = json.loads(line), " ".join(arguments)
            trace = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] != "M"]
            yield from (f"{name}: {one}" for one in differences(played["events"], trace))
            yield from (f"{name}: races with all waits: {race['text']}" for race in played["races"])
            if played["accesses"] == 0:
                yield f"{name}: no accesses"
            if "model.layers=4" == arguments[-1]:
                found = {race["text"] for wait in played["removed"] for race in wait["races"]}
                yield from (f"{strategy}: no wait leads to: {text}" for text in RACES[strategy] if text not in found)


def main():
    player_code.code()  # ends with a line if an event has no line in its rung
    if shutil.which("node") is None:
        print("skipped: node is not on PATH")
        return SKIPPED
    problems = list(problems_of(sys.argv[1]))
    print(*problems, f"player: {len(problems)} problems", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
