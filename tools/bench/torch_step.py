#!/usr/bin/env python3
"""torch_step.py: times a training step in PyTorch, eager and compiled, and in Tessera.

    torch_step.py --model gpt2 --batch 16 --sequence 1024 --ours build-cuda/bin/bench_step

PyTorch is a baseline of bench_step on a GPU: scaled_dot_product_attention, fused AdamW, gradient
clipping, f32 parameters under bfloat16 autocast (the usual recipe, as in nanoGPT), random tokens. Its
vocabulary is rounded up to a multiple of 64, as in nanoGPT, because odd sizes are slow; --vocab sets
another. Models are GPT-2 and Llama; bench_step prints their sizes and runs the same step. With --hf
they are Transformers' GPT-2, Llama and, where there are experts, Qwen3-MoE. The script prints tokens/s
of each and their ratios, all in one run on one device. With --rounds R all take turns R times, with
--steps each, so that a drift of the machine's speed slows all of them; the figures are medians. On the
CPU:

    torch_step.py --device cpu --dtype f32 --batch 4 --sequence 256 --steps 2 --warmup 1 --rounds 3
                  --ours build/bin/bench_step
"""

import argparse
import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ModuleNotFoundError:
    sys.exit("torch_step.py: PyTorch is not installed: pip install torch")


@dataclass
class Sizes:
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    width: int
    mlp_width: int
    gated_mlp: bool
    context: int
    parameters: int
    vocab: int  # as PyTorch has it
    model_vocab: int  # as FLOPs count it
    layers_with_experts: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    shared_expert_width: int = 0


def sizes_of(options):
    """The sizes of the model, from bench_step; the vocabulary is padded."""
    command = [options.ours, "--model", options.model, "--print-shape"]
    shape = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    vocab = options.vocab or -(-shape["vocab_size"] // 64) * 64
    return Sizes(vocab=vocab, model_vocab=shape.pop("vocab_size"), **shape)


def causal_attention(q, k, v, sizes):
    """[B, T, heads * head_size] each, to the same shape as q."""
    q, k, v = (x.unflatten(-1, (-1, sizes.head_size)).transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return o.transpose(1, 2).flatten(2)


class Gpt2Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes, width, inner = sizes, sizes.width, sizes.mlp_width
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).chunk(3, dim=-1)
        x = x + self.proj(causal_attention(q, k, v, self.sizes))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.wte = nn.Embedding(sizes.vocab, sizes.width)
        self.wpe = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.ModuleList(Gpt2Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.width)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rotate(x, cos, sin, head_size):
    """RoPE on x [B, T, heads * head_size], half-split pairs."""
    x = x.unflatten(-1, (-1, head_size))
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(2)


class LlamaBlock(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes, width, inner = sizes, sizes.width, sizes.mlp_width
        queries, keys = sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.o = (nn.Linear(*size, bias=False) for size in ((width, queries), (queries, width)))
        self.k, self.v = (nn.Linear(width, keys, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        y = self.norm_1(x)
        q = rotate(self.q(y), cos, sin, self.sizes.head_size)
        k = rotate(self.k(y), cos, sin, self.sizes.head_size)
        x = x + self.o(causal_attention(q, k, self.v(y), self.sizes))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, sizes, sequence, tied):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocab, sizes.width)
        self.blocks = nn.ModuleList(LlamaBlock(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        steps = torch.arange(0, sizes.head_size, 2) / sizes.head_size
        angles = torch.arange(sequence)[:, None] * 500_000.0 ** -steps
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        cos, sin = (table.to(torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else x.dtype)
                    for table in (self.cos, self.sin))
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def makers_of_models(sizes, options):
    """Functions that make a model, one for each way to have a head."""
    if options.hf:
        from hf_models import HfModel  # Transformers is needed for --hf alone
        return [lambda: HfModel(sizes, True, options.experts),
                lambda: HfModel(sizes, False, options.experts)]
    if sizes.experts > 0:
        sys.exit("torch_step.py: a model with experts needs --hf")
    if not sizes.gated_mlp:
        return [lambda: Gpt2(sizes)]
    return [lambda: Llama(sizes, options.sequence, tied=True),
            lambda: Llama(sizes, options.sequence, tied=False)]


def make_model(sizes, options, device):
    """A model with bench_step's number of parameters, but for the padded rows of its tables."""
    for make in makers_of_models(sizes, options):
        with torch.device(device):
            model = make()
        tables = 1 + any(name.endswith("head.weight") for name, _ in model.named_parameters())
        padded = tables * (sizes.vocab - sizes.model_vocab) * sizes.width
        if sum(p.numel() for p in model.parameters()) == sizes.parameters + padded:
            break
    else:
        sys.exit("torch_step.py: no model here has bench_step's number of parameters, "
                 f"{sizes.parameters:,}")
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model


def flops_per_step(sizes, batch, sequence):
    """As bench_step counts: 6 per token and weight in a matrix product, causal attention halved."""
    channels = sizes.heads * sizes.head_size
    projections = 2 * (sizes.heads + sizes.kv_heads) * sizes.head_size * sizes.width
    mlp = (3 if sizes.gated_mlp else 2) * sizes.mlp_width * sizes.width
    expert = 3 * sizes.expert_width * sizes.width
    experts = sizes.experts_per_token * expert + sizes.experts * sizes.width  # and the router
    mlps = (sizes.layers - sizes.layers_with_experts) * mlp + sizes.layers_with_experts * experts
    weights = sizes.layers * projections + mlps + sizes.model_vocab * sizes.width
    return batch * sequence * (6 * weights + 6 * sizes.layers * channels * sequence)


def make_step(options, sizes, compiled):
    """A function that takes --steps steps and returns their milliseconds. It is warm."""
    torch.manual_seed(0)
    device = torch.device(options.device)
    model = make_model(sizes, options, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss_of = torch.compile(model) if compiled else model
    shape = (options.batch, options.sequence)
    ids = torch.randint(sizes.vocab, shape, device=device)
    targets = torch.randint(sizes.vocab, shape, device=device)

    def step():
        with torch.autocast(device.type, torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = loss_of(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize()

    def timed():
        times = []
        for _ in range(options.steps):
            wait()
            begin = time.perf_counter()
            loss = step()
            wait()
            times.append((time.perf_counter() - begin) * 1e3)
        if not math.isfinite(loss.item()):
            sys.exit("torch_step.py: the loss is not finite")
        return times

    for _ in range(options.warmup):
        step()
    return timed


def our_milliseconds(options):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "step.json"
        command = [options.ours, "--model", options.model, "--batch", str(options.batch)]
        command += ["--sequence", str(options.sequence), "--steps", str(options.steps)]
        command += ["--device", options.device, "--dtype", options.dtype]
        command += ["--attention", options.attention, "--json", str(report)]
        subprocess.run(command, check=True)
        return json.loads(report.read_text(encoding="utf-8"))["step_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="gpt2", help="a preset of GPT-2 or Llama, or tiny")
    parser.add_argument("--vocab", type=int, default=0,
                        help="PyTorch's vocabulary; by default the model's, rounded up to 64")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1, help="turns that each takes")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--hf", action="store_true", help="Transformers' models")
    parser.add_argument("--experts", default="",
                        help="Transformers' implementation of experts; by default its own choice")
    parser.add_argument("--variants", default="eager,compile", help="PyTorch's variants")
    parser.add_argument("--ours", required=True, help="path of bench_step")
    parser.add_argument("--attention", choices=["tessera", "cudnn"], default="tessera",
                        help="Tessera's attention")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_step.py: PyTorch finds no GPU; use --device cpu")
    torch.set_float32_matmul_precision("highest")  # in f32, as ours by default: no tf32

    sizes = sizes_of(options)
    tokens = options.batch * options.sequence
    flops = flops_per_step(sizes, options.batch, options.sequence)
    runs = {f"torch {v}": make_step(options, sizes, v == "compile")
            for v in options.variants.split(",")}
    runs["tessera"] = lambda: [our_milliseconds(options)]
    rounds = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            rounds[name] += run()
    times = {name: statistics.median(values) for name, values in rounds.items()}
    print(f"{options.model}, batch {options.batch} x {options.sequence}, {options.dtype}, "
          f"PyTorch {torch.__version__} with a vocabulary of {sizes.vocab}, "
          f"median of {options.rounds} x {options.steps} steps")
    rows = []
    for name, ms in times.items():
        row = {"name": name, "step_ms": ms, "tokens_per_second": tokens / ms * 1e3,
               "model_flops_per_second": flops / ms * 1e3,
               "tessera_speed_ratio": ms / times["tessera"]}
        rows.append(row)
        ratio = f"  tessera is {row['tessera_speed_ratio']:.3f} x as fast"
        print(f"  {name:<14} {ms:9.2f} ms {row['tokens_per_second']:12.0f} tokens/s "
              f"{row['model_flops_per_second'] * 1e-12:8.2f} TFLOP/s{ratio}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as report:
            json.dump(rows, report, indent=2)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
