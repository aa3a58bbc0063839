#!/usr/bin/env python3
"""torch_kernels.py: times the cases of bench_kernels in PyTorch, eager and compiled.

    bench_kernels --device cuda --json kernels.json
    torch_kernels.py kernels.json

Reads the rows of a bench_kernels report, times the same operation on the same shape and dtype in
PyTorch (scaled_dot_product_attention with the backends it chooses, fused AdamW), with caches
flushed before each run, and prints PyTorch's time over ours. Operations without a counterpart in
PyTorch are left out and named.
"""

import argparse
import json
import math
import re
import signal
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
    results = function(*operands)
    results = results if isinstance(results, tuple) else (results,)
    seeds = [torch.rand_like(result) for result in results]
    wanted = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    return lambda: torch.autograd.grad(results, wanted, seeds, retain_graph=True)


def numbers_of(shape):
    return [int(n) for n in re.findall(r"\d+", shape)]


def norm_case(bench, name, rows, columns, dtype, gradient):
    """y = norm(x), or x + residual and its norm; layer_norm has a bias, rms_norm none."""
    norm = F.layer_norm if name.endswith("layer_norm") else F.rms_norm
    tensors = [bench.noise(rows, columns, dtype=dtype, gradient=gradient)
               for _ in range(2 if name.startswith("add_") else 1)]
    weights = [bench.noise(columns, dtype=dtype, gradient=gradient)
               for _ in range(2 if norm is F.layer_norm else 1)]

    def plain(x, *w):
        return norm(x, (columns,), *w, eps=1e-5)

    def after_sum(x, residual, *w):
        total = x + residual
        return total, norm(total, (columns,), *w, eps=1e-5)

    return after_sum if name.startswith("add_") else plain, (*tensors, *weights)


def linear_case(bench, op, tokens, wide, narrow, dtype):
    x, dy = bench.noise(tokens, narrow, dtype=dtype), bench.noise(tokens, wide, dtype=dtype)
    weight, bias = bench.noise(wide, narrow, dtype=dtype), bench.noise(wide, dtype=dtype)

    def bias_gelu(x, weight, bias):
        pre = F.linear(x, weight, bias)
        return pre, F.gelu(pre, approximate="tanh")

    return {
        "matmul_forward": (F.linear, (x, weight)),
        "matmul_dx": (torch.matmul, (dy, weight)),
        "matmul_dweight": (lambda dy, x: dy.t() @ x, (dy, x)),
        "linear_bias": (F.linear, (x, weight, bias)),
        "linear_bias_gelu": (bias_gelu, (x, weight, bias)),
        "linear_dweight_dbias": (lambda dy, x: (dy.t() @ x, dy.sum(0)), (dy, x)),
        "linear_dx_gelu": (lambda dy, weight, pre: torch.ops.aten.gelu_backward(
            dy @ weight.t(), pre, approximate="tanh"), (x, weight, dy)),
    }.get(op)


def rope_case(bench, batch, tokens, heads, size, dtype, gradient):
    x = bench.noise(batch, tokens, heads, size, dtype=dtype, gradient=gradient)
    angles = torch.rand(tokens, 1, size // 2, device=bench.device)
    cosine, sine = angles.cos(), angles.sin()

    def rope(x):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(dtype)

    return rope, (x,)


def qk_norm_case(bench, batch, tokens, heads, kv_heads, size, dtype, gradient):
    """Norms of queries and keys, then RoPE. Their backward pass there includes RoPE's."""
    q, k = (bench.noise(batch, tokens, count, size, dtype=dtype, gradient=gradient)
            for count in (heads, kv_heads))
    weights = [bench.noise(size, dtype=dtype, gradient=gradient) for _ in range(2)]
    rope, _ = rope_case(bench, batch, tokens, heads, size, dtype, gradient)

    def normed(q, k, q_weight, k_weight):
        return tuple(rope(F.rms_norm(x, (size,), weight, eps=1e-6))
                     for x, weight in ((q, q_weight), (k, k_weight)))

    return normed, (q, k, *weights)


def attention_case(bench, batch, heads, kv_heads, tokens, size, dtype, gradient):
    q, k, v = (bench.noise(batch, count, tokens, size, dtype=dtype, gradient=gradient)
               for count in (heads, kv_heads, kv_heads))
    grouped = {"enable_gqa": True} if heads != kv_heads else {}
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped),
            (q, k, v))


def case_of(bench, op, shape, dtype):
    """(function, operands) whose forward or, for ops named so, backward pass is timed; or None."""
    n = numbers_of(shape)
    gradient = op.endswith("_backward")
    name = re.sub(r"_(forward|backward)$", "", op)
    if name == "qk_norm":
        return qk_norm_case(bench, *n, dtype, gradient)
    if name.endswith("_norm") and name != "gradient_norm":
        return norm_case(bench, name, n[0], n[1], dtype, gradient)
    if op.startswith(("matmul_", "linear_")):
        return linear_case(bench, op, *n, dtype)
    if name == "rope":
        return rope_case(bench, *n, dtype, gradient)
    if name == "attention":
        return attention_case(bench, *n, dtype, gradient)
    if name == "gelu":
        x = bench.noise(*n, dtype=dtype, gradient=gradient)
        return lambda x: F.gelu(x, approximate="tanh"), (x,)
    if name == "swiglu":
        x = bench.noise(n[0], 2 * n[1], dtype=dtype, gradient=gradient)
        return lambda x: F.silu(x[:, :n[1]]) * x[:, n[1]:], (x,)
    if name == "add":
        return torch.add, (bench.noise(*n, dtype=dtype), bench.noise(*n, dtype=dtype))
    if name == "cast_to_f32":
        return lambda x: x.float(), (bench.noise(*n, dtype=dtype),)
    if name == "cast_from_f32":
        return lambda x: x.to(dtype), (bench.noise(*n, dtype=torch.float32),)
    if name == "dropout":
        return lambda x: F.dropout(x, 0.1), (bench.noise(*n, dtype=dtype),)
    if name == "embedding":
        table = bench.noise(n[1], n[2], dtype=dtype, gradient=gradient)
        return F.embedding, (bench.ids(n[0], n[1]), table)
    if name == "cross_entropy":
        logits = bench.noise(*n, dtype=dtype, gradient=gradient)
        return (lambda logits, ids: F.cross_entropy(logits, ids, reduction="none"),
                (logits, bench.ids(n[0], n[1])))
    return None


def linear_cross_entropy(bench, shape, dtype, wrap):
    tokens, vocab, width = numbers_of(shape)
    x = bench.noise(tokens, width, dtype=dtype, gradient=True)
    weight = bench.noise(vocab, width, dtype=dtype, gradient=True)
    targets = bench.ids(tokens, vocab)
    loss_of = wrap(lambda x, weight: F.cross_entropy(F.linear(x, weight), targets))
    return lambda: torch.autograd.grad(loss_of(x, weight), [x, weight])


def cross_entropy_chunk(bench, shape, dtype, wrap):
    rows, vocab = numbers_of(shape)
    logits = bench.noise(rows, vocab, dtype=dtype, gradient=True)
    targets = bench.ids(rows, vocab)
    loss_of = wrap(lambda logits: F.cross_entropy(logits, targets))
    return lambda: torch.autograd.grad(loss_of(logits), [logits])


def f32_tensors(bench, shape):
    """As many tensors with as many elements together, of one size."""
    total, count = numbers_of(shape)
    return [bench.noise(total // count, dtype=torch.float32) for _ in range(count)]


def adamw(bench, shape):
    parameters = [torch.nn.Parameter(x) for x in f32_tensors(bench, shape)]
    for parameter in parameters:
        parameter.grad = torch.rand_like(parameter)
    fused = bench.device.type == "cuda"
    return torch.optim.AdamW(parameters, lr=1e-5, weight_decay=0.0, fused=fused).step


def gradient_norm(bench, shape, wrap):
    def norm(*tensors):
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))

    return forward(wrap(norm), *f32_tensors(bench, shape))


def run_of(bench, op, shape, dtype, wrap):
    """The function to time, or None if PyTorch has no counterpart."""
    if op == "linear_cross_entropy":
        return linear_cross_entropy(bench, shape, dtype, wrap)
    if op == "cross_entropy_chunk":
        return cross_entropy_chunk(bench, shape, dtype, wrap)
    if op == "adamw":
        return adamw(bench, shape)
    if op == "gradient_norm":
        return gradient_norm(bench, shape, wrap)
    case = case_of(bench, op, shape, dtype)
    if case is None:
        return None
    function, operands = case
    return (backward if op.endswith("_backward") else forward)(wrap(function), *operands)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("report", help="the file that bench_kernels --json wrote")
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
        rows = [row for row in json.load(report)["kernels"] if options.op in row["op"]]
    print(f"PyTorch {torch.__version__} on {options.device}; ratio: its time over ours")
    print(f"{'op':<25} {'shape':<34} {'dtype':<5} {'ours ms':>9}"
          + "".join(f" {name + ' ms':>11} {'ratio':>6}" for name in variants))
    left_out = set()
    for row in rows:
        dtype = DTYPES[row["dtype"]]
        line = f"{row['op']:<25} {row['shape']:<34} {row['dtype']:<5} {row['time_ms']:>9.4f}"
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
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
