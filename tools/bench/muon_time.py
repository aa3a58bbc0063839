#!/usr/bin/env python3
"""muon_time.py FOLDER [TESSERA]: the processor time of a step of Muon next to AdamW's, for docs/kernels/optimizer.md.

The model is GPT-2 with 124M parameters, the batch 4 x 256 tokens, on two ranks under fsdp. A run's processor time is the
user and system time of its process, so other work on the machine counts little. A step's is the difference of runs of two
steps and of one. Runs of both rules alternate; the figure is the median over the pairs. The expected ratio is
1 + (operations of Newton-Schulz) / (operations of the model), at equal speed per operation.

FOLDER has data/quickstart of tools/quickstart.sh. TESSERA is build/bin/tessera by default.
"""
import argparse
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAIRS = 3
LAYERS, WIDTH, VOCABULARY, ROWS, LENGTH = 12, 768, 50257, 4, 256
NEWTON_SCHULZ = LAYERS * 280 * WIDTH**3
MODEL = ROWS * LENGTH * (6 * (12 * LAYERS * WIDTH**2 + VOCABULARY * WIDTH) + 6 * LAYERS * WIDTH * LENGTH)


def seconds_of(rule, steps, folder, tessera):
    run = folder / "runs/time"
    keys = {"model.preset": "gpt2", "model.layers": LAYERS, "model.heads": 12, "model.width": WIDTH,
            "model.context": 1024, "model.vocab_size": VOCABULARY, "optimizer.warmup_steps": 0,
            "data.batch_size": ROWS, "data.sequence_length": LENGTH, "optimizer.name": rule, "sharding.strategy": "fsdp",
            "runtime.ranks": 2, "train.dir": run, "train.steps": steps, "train.eval_every": 0, "train.checkpoint_every": 0}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([tessera, "train", str(ROOT / "examples/quickstart.yaml"), *(f"{key}={value}" for key, value in keys.items())], cwd=folder,
                   stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(run)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("tessera", type=pathlib.Path, nargs="?", default=ROOT / "build/bin/tessera")
    options = parser.parse_args()
    folder, tessera = options.folder.resolve(), options.tessera.resolve()
    ratios = []
    for _ in range(PAIRS):
        adamw, muon = (seconds_of(rule, 2, folder, tessera) - seconds_of(rule, 1, folder, tessera) for rule in ("adamw", "muon"))
        ratios.append(muon / adamw)
        print(f"adamw {adamw:.1f} s, muon {muon:.1f} s of processor time a step: {ratios[-1]:.2f} times", flush=True)
    expected = 1 + NEWTON_SCHULZ / MODEL
    median = statistics.median(ratios)
    print(f"{NEWTON_SCHULZ / 2e9:.0f} GFLOP of Newton-Schulz and {MODEL / 2e9:.0f} of the model a rank: {expected:.2f} times is expected")
    print(f"median {median:.2f} times, {median / expected:.2f} of the expected")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
