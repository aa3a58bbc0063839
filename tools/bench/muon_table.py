#!/usr/bin/env python3
"""muon_table.py FOLDER [TESSERA]: the table of Muon next to AdamW in docs/kernels/optimizer.md.

Both rules train the same model on the same tokens, on one rank with one thread. Each rule gets four runs: all learning
rates of its example are multiplied by 1/2, 1, 2 and 4. The best run of a rule has the smallest last validation loss. The
last column counts Muon's steps up to the first evaluation that is at most AdamW's last loss.

FOLDER has the data that the examples name, in FOLDER/data, and gets the runs. A finished run is not repeated: the whole
table takes about 30 minutes of a core. TESSERA is build/bin/tessera by default.
"""
import argparse
import json
import pathlib
import re
import signal
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FACTORS = [0.5, 1, 2, 4]
# A model: the examples of both rules, and the steps of a run.
MODELS = {"llama3-mini": ("llama3_mini", "muon_llama3_mini", 800), "gpt2-mini": ("quickstart", "muon_gpt2_mini", 300)}


def losses(example, factor, steps, folder, tessera):
    """Validation losses by step."""
    run = folder / f"runs/{example}-{factor:g}"
    metrics = run / "metrics.jsonl"
    if not (run / "model").exists():
        text = (ROOT / f"examples/{example}.yaml").read_text(encoding="utf-8")
        config = folder / f"{example}-{factor:g}.yaml"
        config.write_text(re.sub(r"(?<=learning_rate: )\S+", lambda rate: str(float(rate[0]) * factor), text), encoding="utf-8")
        keys = {"train.dir": run, "train.steps": steps, "train.eval_every": 25, "train.eval_batches": 40,
                "runtime.ranks": 1, "sharding.strategy": "single", "runtime.threads": 1}
        subprocess.run([tessera, "train", str(config), *(f"{key}={value}" for key, value in keys.items())], cwd=folder,
                       stdout=subprocess.DEVNULL, check=True)
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {line["step"]: line["val_loss"] for line in lines if "val_loss" in line}


def row(model, folder, tessera):
    *examples, steps = MODELS[model]
    runs = [[losses(example, factor, steps, folder, tessera) for factor in FACTORS] for example in examples]
    last = [[run[steps] for run in of_rule] for of_rule in runs]
    muon = runs[1][last[1].index(min(last[1]))]
    reached = next((step for step, loss in sorted(muon.items()) if loss <= min(last[0])), None)
    cells = [model, str(steps), *(" ".join(f"**{loss:.3f}**" if loss == min(of_rule) else f"{loss:.3f}" for loss in of_rule)
                                  for of_rule in last), str(reached or "not reached")]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("tessera", type=pathlib.Path, nargs="?", default=ROOT / "build/bin/tessera")
    options = parser.parse_args()
    folder, tessera = options.folder.resolve(), options.tessera.resolve()
    print("| model | steps | AdamW at 1/2, 1, 2, 4 | Muon at 1/2, 1, 2, 4 | Muon's steps to AdamW's best |\n|---|--:|--:|--:|--:|")
    for model in MODELS:
        print(row(model, folder, tessera), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
