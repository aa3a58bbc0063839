#!/usr/bin/env python3
"""torch_kernels.py: the cases of bench_kernels in PyTorch, eager and compiled, beside ours.

    bench_kernels --device cuda --json kernels.json
    torch_kernels.py kernels.json

Reads the rows of a bench_kernels report, times the same operation on the same shape and dtype in
PyTorch (scaled_dot_product_attention with the backends it chooses, fused AdamW), with caches
flushed before each run, and prints PyTorch's time over ours. Operations that PyTorch has no
counterpart of are left out and named.
"""

import argparse
import json
import math
import re
import statistics
import sys
import time

try:
    import torch
    from torch.nn import functional as F
except ModuleNotFoundError:
    sys.exit("torch_kernels.py: PyTorch is not installed: pip install torch")

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Bench:
    """Makes operands, and times functions with the caches flushed."""

    def __init__(self, device, runs):
        self.device, self.runs = torch.device(device), runs
        cuda = self.device.type == "cuda"
        self.scratch = torch.empty((512 if cuda else 64) << 20, dtype=torch.uint8, device=device)

    def noise(self, *shape, dtype, gradient=False):
        values = (torch.rand(shape, device=self.device) - 0.5).to(dtype)
        return values.requires_grad_(gradient)

    def ids(self, count, bound):
        return torch.randint(bound, (count,), device=self.device)

    def median_ms(self, run):
        return statistics.median(self._once(run) for _ in range(self.runs + 3))

    def _once(self, run):
        self.scratch.zero_()
        if self.device.type == "cpu":
            begin = time.perf_counter()
            run()
            return (time.perf_counter() - begin) * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


def forward(function, *operands):
    def run():
        with torch.no_grad():
            function(*operands)
    return run


def backward(function, *operands):
    """The backward pass alone: the graph is kept, gradients are returned rather than stored."""
    result = function(*operands)
    seed = torch.rand_like(result)
    wanted = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    return lambda: torch.autograd.grad(result, wanted, seed, retain_graph=True)


def numbers_of(shape):
    return [int(n) for n in re.findall(r"\d+", shape)]


def norm_case(bench, rows, columns, dtype, function, gradient):
    x = bench.noise(rows, columns, dtype=dtype, gradient=gradient)
    weights = [bench.noise(columns, dtype=dtype, gradient=gradient)
               for _ in range(2 if function is F.layer_norm else 1)]
    return lambda x, *w: function(x, (columns,), *w, eps=1e-5), (x, *weights)


def case_of(bench, op, shape, dtype):
    """(function, operands, is it a backward pass), or None."""
    n = numbers_of(shape)
    gradient = op.endswith("_backward")
    name = re.sub(r"_(forward|backward)$", "", op)
    if name in ("layer_norm", "rms_norm"):
        function = F.layer_norm if name == "layer_norm" else F.rms_norm
        return *norm_case(bench, n[0], n[1], dtype, function, gradient), gradient
    if name == "gelu":
        x = bench.noise(*n, dtype=dtype, gradient=gradient)
        return lambda x: F.gelu(x, approximate="tanh"), (x,), gradient
    if name == "swiglu":
        x = bench.noise(n[0], 2 * n[1], dtype=dtype, gradient=gradient)
        return lambda x: F.silu(x[:, :n[1]]) * x[:, n[1]:], (x,), gradient
    if name == "add":
        return torch.add, (bench.noise(*n, dtype=dtype), bench.noise(*n, dtype=dtype)), False
    if name == "cast_to_f32":
        return lambda x: x.float(), (bench.noise(*n, dtype=dtype),), False
    if name == "dropout":
        return lambda x: F.dropout(x, 0.1), (bench.noise(*n, dtype=dtype),), False
    if name == "embedding":
        table = bench.noise(n[1], n[2], dtype=dtype, gradient=gradient)
        return F.embedding, (bench.ids(n[0], n[1]), table), gradient
    if name in ("matmul", "matmul_dx", "matmul_dweight"):
        tokens, wide, narrow = n
        x, dy = bench.noise(tokens, narrow, dtype=dtype), bench.noise(tokens, wide, dtype=dtype)
        weight = bench.noise(wide, narrow, dtype=dtype)
        return {"matmul": (F.linear, (x, weight), False),
                "matmul_dx": (torch.matmul, (dy, weight), False),
                "matmul_dweight": (lambda dy, x: dy.t() @ x, (dy, x), False)}[name]
    if name == "attention":
        batch, heads, tokens, size = n
        q, k, v = (bench.noise(batch, heads, tokens, size, dtype=dtype, gradient=gradient)
                   for _ in range(3))
        return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                (q, k, v), gradient)
    if name == "cross_entropy":
        logits = bench.noise(*n, dtype=dtype, gradient=gradient)
        return (lambda logits, ids: F.cross_entropy(logits, ids, reduction="none"),
                (logits, bench.ids(n[0], n[1])), gradient)
    return None


def linear_cross_entropy(bench, shape, dtype, wrap):
    tokens, vocab, width = numbers_of(shape)
    x = bench.noise(tokens, width, dtype=dtype, gradient=True)
    weight = bench.noise(vocab, width, dtype=dtype, gradient=True)
    targets = bench.ids(tokens, vocab)
    loss_of = wrap(lambda x, weight: F.cross_entropy(F.linear(x, weight), targets))
    return lambda: torch.autograd.grad(loss_of(x, weight), [x, weight])


def adamw(bench, shape):
    parameter = bench.noise(numbers_of(shape)[0], dtype=torch.float32, gradient=True)
    parameter.grad = torch.rand_like(parameter)
    fused = bench.device.type == "cuda"
    return torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.0, fused=fused).step


def run_of(bench, op, shape, dtype, wrap):
    """What is timed, or None if PyTorch has no counterpart."""
    if op == "linear_cross_entropy":
        return linear_cross_entropy(bench, shape, dtype, wrap)
    if op == "adamw":
        return adamw(bench, shape)
    case = case_of(bench, op, shape, dtype)
    if case is None:
        return None
    function, operands, is_backward = case
    return (backward if is_backward else forward)(wrap(function), *operands)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("report", help="of bench_kernels --json")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--op", default="", help="only operations whose name contains this")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--no-compile", action="store_true", help="eager only")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_kernels.py: PyTorch finds no GPU; use --device cpu")

    bench = Bench(options.device, options.runs)
    variants = {"eager": lambda f: f}
    if not options.no_compile:
        variants["compile"] = lambda f: torch.compile(f, dynamic=False)
    with open(options.report, encoding="utf-8") as report:
        rows = [row for row in json.load(report) if options.op in row["op"]]
    print(f"PyTorch {torch.__version__} on {options.device}; ratio: its time over ours")
    print(f"{'op':<22} {'shape':<32} {'dtype':<5} {'ours ms':>9}"
          + "".join(f" {name + ' ms':>11} {'ratio':>6}" for name in variants))
    left_out = set()
    for row in rows:
        dtype = DTYPES[row["dtype"]]
        line = f"{row['op']:<22} {row['shape']:<32} {row['dtype']:<5} {row['time_ms']:>9.4f}"
        for name, wrap in variants.items():
            run = run_of(bench, row["op"], row["shape"], dtype, wrap)
            if run is None:
                left_out.add(row["op"])
                break
            ms = bench.median_ms(run)
            row[f"torch_{name}_ms"], row[f"torch_{name}_ratio"] = ms, ms / row["time_ms"]
            assert math.isfinite(ms)
            line += f" {ms:>11.4f} {ms / row['time_ms']:>6.2f}"
        else:
            print(line, flush=True)
    if left_out:
        print("no counterpart:", ", ".join(sorted(left_out)))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as report:
            json.dump(rows, report, indent=2)


if __name__ == "__main__":
    main()
