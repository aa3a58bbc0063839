#!/usr/bin/env python3
"""counts_report.py FILE...: the tables of docs/gpu_results.md, section "Counted", from reports of bench_counts.

  build-counting/bin/bench_counts --model gpt2 --batch 16 --sequence 1024 --json gpt2.json
  tools/bench/counts_report.py gpt2.json ...

Prints launches and bytes of a layer; the time of a step, its parts and the MFU that it implies; the host's
calls; and the kernels of a layer. Every figure is counted or follows from counts.
"""

import json
import signal
import sys

from gpu_report import table

PHASES = ["forward", "backward", "optimizer"]


def name_of(report):
    batch = report["describes"].rsplit("batch ", 1)[1].split(" x ")
    named = {"optimizer.master_dtype=bf16": ", bf16 masters", "optimizer.gradient_dtype=bf16": ", bf16 gradients",
             "runtime.compute_dtype=fp8": ", fp8"}
    settings = "".join(text for setting, text in named.items() if setting in report["settings"])
    return f"{report['model']}, {int(batch[0])} x {int(batch[1]):,}{settings}"


def bytes_of(layer, phase):
    own, least = layer[f"own_bytes_{phase}"], layer[f"least_bytes_{phase}"]
    return f"{own / 1e6:.1f} of {least / 1e6:.1f} MB, **{own / least:.2f}**"


def layer_row(report):
    layer = report["layer"]
    launches = [f"{layer[f'launches_{phase}']:.0f}" for phase in PHASES[:2]]
    return [name_of(report), *launches, *(bytes_of(layer, phase) for phase in PHASES[:2])]


def milliseconds(report, phase, gpu):
    return 1e-3 * sum(kernel["expected_us"][gpu] for kernel in report["kernels"] if kernel["phase"] == phase)


def time_row(report):
    sums = report["sums"]
    parts = [milliseconds(report, phase, "H200") for phase in PHASES]
    return [name_of(report), f"{sums['H200']['roofline_ms']:.1f} ms",
            " + ".join(f"{part:.1f}" for part in parts) + " ms", f"**{sums['H200']['mfu']:.3f}**",
            f"{sums['H200']['mfu_without_optimizer']:.3f}", f"{sums['H200']['burst_mfu']:.3f}",
            f"{sums['H100']['expected_ms']:.1f} ms, **{sums['H100']['mfu']:.3f}**",
            f"{sums['A100']['expected_ms']:.1f} ms", f"{sums['4090']['expected_ms']:.1f} ms"]


def megabytes(kernel, kind):
    return f"{32e-6 * (kernel[f'reads.{kind}'] + kernel[f'writes.{kind}']):.1f}"


def host_calls(report):
    for how, counts in report["host_calls"].items():
        yield [report["model"], how, *counts.values()]


def kernel_rows(report):
    for kernel in report["layer_kernels"]:
        if kernel["launches"] and kernel["phase"] != "optimizer":
            yield [name_of(report), kernel["phase"], f"`{kernel['kernel']}`", f"{kernel['launches']:.0f}",
                   megabytes(kernel, "distinct"),
                   f"{kernel['matrix_flops'] / 1e9:.1f}"]


def main(paths):
    if not paths:
        sys.exit(__doc__)
    reports = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    table(["model", "launches of a layer, forward", "backward", "own kernels' bytes, forward", "backward"],
          map(layer_row, reports))
    table(["model", "H200, roofline", "H200, expected: forward + backward + optimizer", "MFU",
           "MFU of forward and backward", "MFU with products at the burst rate", "H100, expected, MFU", "A100, expected", "4090, expected"],
          map(time_row, reports))
    table(["model", "steps", *reports[0]["host_calls"]["queued"]],
          (row for report in reports for row in host_calls(report)))
    table(["model", "phase", "kernel", "launches", "distinct MB", "GFLOP"],
          (row for report in reports for row in kernel_rows(report)))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main(sys.argv[1:])
