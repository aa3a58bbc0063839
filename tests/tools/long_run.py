#!/usr/bin/env python3
"""Trains for hours and fails if memory or the number of open files grows.

  tests/tools/long_run.py build/bin/tessera [--minutes 120] [--set key=value ...]

The run is gpt2-mini as fsdp on two ranks. It writes a checkpoint about every minute, evaluates, draws
samples and traces a few steps. Every few seconds the script reads the program's memory without files
(RssAnon + RssShmem), its open files and its threads from /proc. It ends the run with SIGTERM. The largest
figures of the last quarter may not be above those of the second quarter (memory: by 1 % and 1 MiB).
Prints a line for each tenth of the time. It takes hours, so no test of the suite runs it at full length.
"""
import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

MIB = 2**20
MEMORY_SLACK = 0.01  # of the second quarter's peak, and one MiB


def train(options, folder, run, **more):
    settings = {
        "model.preset": "gpt2-mini", "data.train": folder / "data/train.bin", "data.val": folder / "data/val.bin",
        "data.batch_size": 2, "data.sequence_length": 64, "optimizer.schedule": "constant",
        "runtime.device": "cpu", "runtime.ranks": 2, "runtime.threads": 1, "sharding.strategy": "fsdp",
        "train.dir": folder / run, "train.log_every": 10, "train.eval_every": 50,
        "train.eval_batches": 2, "train.sample_every": 100, "sample.tokens": 16} | more
    arguments = [f"{key}={value}" for key, value in settings.items()] + options.set
    return subprocess.Popen([options.program, "train", folder / "run.yaml", *arguments],
                            stdout=open(folder / f"{run}.log", "w"), stderr=subprocess.STDOUT)


def steps_per_second(options, folder):
    """The rate of a short run."""
    process = train(options, folder, "short", **{"train.steps": 40, "train.checkpoint_every": 0})
    if process.wait() != 0:
        raise SystemExit((folder / "short.log").read_text())
    lines = [json.loads(line) for line in (folder / "short/metrics.jsonl").read_text().splitlines()]
    return 1000 / [line for line in lines if "step_ms" in line][-1]["step_ms"]


def sample(process):
    """(bytes of memory, open files, threads) of the process, or None when it has ended."""
    proc = pathlib.Path(f"/proc/{process.pid}")
    try:
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        memory = sum(int(status[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem"))
        return memory, sum(1 for _ in (proc / "fd").iterdir()), int(status["Threads"])
    except (OSError, KeyError):
        return None


def watch(process, seconds, interval):
    samples = []
    begin = time.monotonic()
    while (now := time.monotonic() - begin) < seconds and process.poll() is None:
        values = sample(process)
        if values:
            if int(10 * now / seconds) > (int(10 * samples[-1][0] / seconds) if samples else -1):
                print(f"{now / 60:6.1f} min: {values[0] / MIB:8.1f} MiB, {values[1]} files, "
                      f"{values[2]} threads", flush=True)
            samples.append((now, *values))
        time.sleep(interval)
    return samples


def peaks(samples, seconds, quarter):
    """The largest memory, open files and threads in a quarter (0 to 3) of the time."""
    part = [values for at, *values in samples if quarter <= 4 * at / seconds < quarter + 1]
    return [max(column) for column in zip(*part)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    seconds = 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="tessera-long-") as name:
        folder = pathlib.Path(name)
        (folder / "run.yaml").write_text("train: {progress: lines}\n")
        (folder / "text.txt").write_text("".join(f"{i * i % 997} " for i in range(20000)))
        subprocess.run([options.program, "prepare", "--input", folder / "text.txt", "--tokenizer",
                        "bytes", "--out", folder / "data"], check=True, stdout=subprocess.DEVNULL)
        every = max(1, round(steps_per_second(options, folder) * min(60, seconds / 8)))
        process = train(options, folder, "long", **{
            "train.steps": 10**8, "train.checkpoint_every": every, "train.profile": f"{every}-{every + 5}"})
        samples = watch(process, seconds, min(5, seconds / 80))
        process.send_signal(signal.SIGTERM)
        ended = process.wait()
        if ended != 0:
            raise SystemExit((folder / "long.log").read_text()[-4000:])
        events = [json.loads(line) for line in (folder / "long/metrics.jsonl").read_text().splitlines()]
        counts = {name: sum(line.get("event") == name for line in events)
                  for name in ("checkpoint", "eval", "sample")}
        kept = len(list((folder / "long").glob("step-*")))
    before, after = peaks(samples, seconds, 1), peaks(samples, seconds, 3)
    limit = before[0] * (1 + MEMORY_SLACK) + MIB
    grown = [name for name, grew in (("memory", after[0] > limit), ("open files", after[1] > before[1]),
                                     ("threads", after[2] > before[2])) if grew]
    print(f"{options.minutes:g} min, step {events[-1]['step']}, {counts['checkpoint']} checkpoints "
          f"({kept} kept), {counts['eval']} evaluations, {counts['sample']} samples; second quarter "
          f"{before[0] / MIB:.1f} MiB, {before[1]} files, {before[2]} threads; last quarter "
          f"{after[0] / MIB:.1f} MiB, {after[1]} files, {after[2]} threads: "
          f"{'no growth' if not grown else 'GROWN: ' + ', '.join(grown)}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
