#!/usr/bin/env python3
"""gpu_report.py RESULTS: prints the tables of docs/gpu_results.md from a folder that on_gpu.sh wrote.

Reads whatever reports are there: summary.txt, kernels.json, torch_kernels.json, step_*.json,
torch_step_*.json, strategies_*.json and PART.gpu.csv. Rates are of the run's own device.
"""

import argparse
import json
import signal
from pathlib import Path
from statistics import mean


def table(heads, rows):
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def print_kernels(results):
    """Milliseconds and ratio to the baseline, a column per model; PyTorch's time over ours if measured."""
    path = results / "kernels.json"
    if not path.exists():
        return
    report = load(path)
    torch_path = results / "torch_kernels.json"
    in_torch = load(torch_path) if torch_path.exists() else []
    ratios = {(row["op"], row["shape"], row["baseline"]):
              [row[key] for key in ("torch_eager_ratio", "torch_compile_ratio") if key in row]
              for row in in_torch}
    cells = {}  # by kernel and baseline, in the models' order
    for row in report["kernels"]:
        cell = f"{row['time_ms']:.3f} ms, **{row['ratio']:.2f}**"
        for ratio in ratios.get((row["op"], row["shape"], row["baseline"]), []):
            cell += f", {ratio:.1f}"
        op = row["op"].replace("_8", " of 8").replace("_64", " of 64")
        cells.setdefault((op.replace("_", " "), row["baseline"]), []).append(cell)
    table(("kernel", "baseline", *report.get("models", [])), [(*key, *row) for key, row in cells.items()])


# Bits of nvml.h's nvmlClocksEventReason...; a GPU without work says so by the first.
IDLE, REASONS = 0x1, {0x4: "power", 0x8: "hardware", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}


def gpu_samples(path):
    """Clock in MHz, power in W, and reasons, of the samples with work."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            clock, power, reasons = line.split(", ")[:3]
            sample = float(clock), float(power), int(reasons, 16)
        except ValueError:  # an error of nvidia-smi, a value that it lacks, a line that was cut
            continue
        if not sample[2] & IDLE:
            yield sample


def print_clocks(results):
    """The means of each part over its samples with work."""
    rows = []
    for path in sorted(results.glob("*.gpu.csv"), key=lambda path: path.stat().st_mtime):
        samples = list(gpu_samples(path))
        if not samples:
            continue
        clocks, powers, reasons = zip(*samples)
        shares = {name: sum(bool(bits & bit) for bits in reasons) / len(samples) for bit, name in REASONS.items()}
        rows.append((path.name.removesuffix(".gpu.csv"), len(samples), f"{mean(clocks):.0f}", f"{mean(powers):.0f}",
                     f"{max(powers):.0f}", ", ".join(f"{name} {share:.2f}" for name, share in shares.items() if share)))
    if rows:
        table(("part", "samples at work", "SM MHz", "W", "most W", "share of the time limited by"), rows)


def sustained_cells(step):
    """Milliseconds and MFU of steps without a pause, clock, power, energy of a token and limits of the clock."""
    sustained = step.get("sustained")
    if not sustained:
        return [""] * 6
    cells = [f"{sustained['step_ms']:.1f}", f"{sustained['mfu']:.3f}" if sustained["mfu"] else "-"]
    if "watts" not in sustained:
        return cells + ["-"] * 4
    reasons = ", ".join(f"{name} {share:.2f}" for name, share in sustained["clock_event_reasons"].items())
    return cells + [f"{sustained['sm_mhz']:.0f}", f"{sustained['watts']:.0f}",
                    f"{1e3 * sustained['joules_per_token']:.2f}", reasons]


def program_of(config):
    """The choices of a step that on_gpu.sh varies."""
    name = f"tessera, attention {config['kernels.attention']}"
    if str(config["runtime.graph"]).lower() == "true":
        name += ", one graph"
    if str(config.get("kernels.early_launch")).lower() == "true":
        name += ", early launches"
    if config["kernels.cublaslt"] == "measured":
        name += ", measured algorithms"
    if config.get("kernels.swiglu") == "separate":
        name += ", separate SwiGLU"
    if config.get("kernels.gelu") == "own":
        name += ", own GELU"
    return name


def print_steps(results):
    """A step of each model with all choices, and the same step in PyTorch."""
    rows = []
    for path in sorted(results.glob("step_*.json")):
        step = load(path)
        config = step["config"]
        size = f"{config['data.batch_size']} x {config['data.sequence_length']}"
        phases = " + ".join(f"{step[p + '_ms']:.1f}" for p in ("forward", "backward", "optimizer"))
        rows.append((f"{step['model']}, {size}", program_of(config), f"{step['step_ms']:.1f}", phases,
                     f"{step['tokens_per_second']:,.0f}",
                     f"{step['mfu']:.3f}" if step["mfu"] else "-", *sustained_cells(step),
                     f"{step['ratio']:.2f}", ""))
    for path in sorted(results.glob("torch_step_*.json")):
        for row in load(path):
            rows.append((path.stem.removeprefix("torch_step_"), row["name"], f"{row['step_ms']:.1f}", "",
                         f"{row['tokens_per_second']:,.0f}", "", *[""] * 6, "", f"{row['tessera_speed_ratio']:.2f}"))
    if rows:
        table(("model", "program", "ms", "forward + backward + optimizer", "tokens/s", "MFU",
               "without a pause, ms", "MFU", "SM MHz", "W", "mJ per token", "share of the time limited by",
               "of cuBLASLt's products", "tessera is x as fast"), rows)


def print_strategies(results):
    for path in sorted(results.glob("strategies_*.json")):
        report = load(path)
        rows = [(row["strategy"], row["loss"], row["weights_checksum"], "yes" if row["same_bits"] else "no",
                 f"{row['step_ms']:.1f}", f"{row['step_ratio']:.2f}") for row in report["strategies"]]
        print(f"{path.stem}: {report['ranks']} ranks on one device\n")
        table(("strategy", "loss", "weights", "same bits", "ms per step", "ratio to the first"), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("results", type=Path, help="the folder that on_gpu.sh wrote")
    results = parser.parse_args().results
    summary = results / "summary.txt"
    if summary.exists():
        print("```\n" + summary.read_text(encoding="utf-8") + "```\n")
    print_kernels(results)
    print_steps(results)
    print_clocks(results)
    print_strategies(results)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
