#!/usr/bin/env python3
"""Kills a training run a hundred times at random moments and compares its end with an undisturbed run.

  tests/tools/killed_runs.py build/bin/tessera [--kills 100] [--seed 1] [--ranks 2 4 1]

The run is fsdp with a checkpoint every five steps. It is ended by SIGKILL, in its start, between steps or
while it writes, and started again with the same command until it is complete. Its weights must have the
bits of the undisturbed run. With several numbers of ranks each start takes the next of them, under
train.elastic. It takes some minutes, so no test of the suite runs it.
"""
import argparse
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

STEPS_PER_KILL = 30
ELASTIC = 4


def train(program, folder, name, ranks, steps):
    arguments = [
        program, "train", folder / "run.yaml", f"train.dir={folder / name}", f"data.train={folder / 'data/train.bin'}",
        "model.layers=2", "model.heads=2", "model.width=16", "model.context=24",
        "data.batch_size=8", "data.sequence_length=24", "optimizer.schedule=constant",
        f"train.steps={steps}", "train.eval_every=0", "train.log_every=100000",
        "train.checkpoint_every=5", "runtime.device=cpu", "runtime.threads=1",
        "sharding.strategy=fsdp", f"runtime.ranks={ranks[0]}"]
    if len(ranks) > 1:
        arguments.append(f"train.elastic={ELASTIC}")
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def newest(run):
    """The newest checkpoint that has its name."""
    steps = [int(path.name[5:]) for path in run.glob("step-*") if path.suffix == ""]
    return max(steps, default=0)


def kill_at_random(process, run, draws):
    """Waits for up to four new checkpoints and a little more, or in one of four cases for a moment only.
    Returns whether the process was still running."""
    before = newest(run)
    ahead = draws.randrange(5) * 5
    deadline = time.monotonic() + (draws.uniform(0.0, 0.3) if draws.randrange(4) == 0 else 60.0)
    while process.poll() is None and time.monotonic() < deadline and newest(run) < before + ahead:
        time.sleep(0.001)
    time.sleep(draws.uniform(0.0, 0.02))
    process.send_signal(signal.SIGKILL)
    output = process.communicate()[0]
    if process.returncode in (0, -signal.SIGKILL):
        return process.returncode != 0
    raise SystemExit(f"the run failed:\n{output}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    options = parser.parse_args()
    draws = random.Random(options.seed)
    steps = STEPS_PER_KILL * options.kills
    with tempfile.TemporaryDirectory(prefix="tessera-kills-") as name:
        folder = pathlib.Path(name)
        (folder / "run.yaml").write_text("model: {preset: gpt2-mini}\n")
        text = folder / "text.txt"
        text.write_text("".join(f"{i % 99} " for i in range(2000)))
        subprocess.run([options.program, "prepare", "--input", str(text), "--tokenizer", "chars", "--out",
                        str(folder / "data")], check=True, stdout=subprocess.DEVNULL)
        ranks = options.ranks
        undisturbed = train(options.program, folder, "undisturbed", ranks, steps)
        output = undisturbed.communicate()[0]
        if undisturbed.returncode != 0:
            raise SystemExit(f"the undisturbed run failed:\n{output}")
        kills = damaged = 0
        while kills < options.kills:
            process = train(options.program, folder, "killed", ranks, steps)
            if not kill_at_random(process, folder / "killed", draws):
                break
            kills += 1
            ranks = ranks[1:] + ranks[:1]
            if newest(folder / "killed") > 0:
                verify = subprocess.run([options.program, "checkpoint", "verify",
                                         str(folder / "killed")], capture_output=True)
                damaged += verify.returncode != 0
        last = newest(folder / "killed")
        final = train(options.program, folder, "killed", ranks, steps)
        output = final.communicate()[0]
        if final.returncode != 0:
            raise SystemExit(f"the last run failed:\n{output}")
        model = pathlib.Path("model/model.safetensors")
        equal = ((folder / "undisturbed" / model).read_bytes() ==
                 (folder / "killed" / model).read_bytes())
    print(f"{kills} kills up to step {last} of {steps}, {damaged} damaged checkpoints; the weights are "
          f"{'equal' if equal else 'DIFFERENT'}")
    return 0 if equal and damaged == 0 and kills == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
