#!/usr/bin/env python3
"""torch_step.py: times a training step in PyTorch, eager and compiled, and in Tessera.

    torch_step.py --model gpt2 --batch 16 --sequence 1024 --ours build-cuda/bin/bench_step

PyTorch is a baseline of bench_step on a GPU: scaled_dot_product_attention, fused AdamW, gradient
clipping, f32 parameters under bfloat16 autocast (the usual recipe, as in nanoGPT), random tokens. Its
vocabulary is rounded up to a multiple of 64, as in nanoGPT, because odd sizes are slow; --vocab sets
another. Models are GPT-2, Llama, Qwen2.5 and Qwen3-MoE; bench_step prints their sizes and runs the same
step. With --hf they are Transformers' GPT-2, Llama and Qwen3-MoE. --masters bf16 keeps parameters and
moments in bf16, for models whose f32 ones do not fit. key=value arguments go to bench_step. The script prints
tokens/s of each and their ratios, all in one run on one device. In one round each program has the device's
memory to itself. With --rounds R all take turns R times, with --steps each, so that a drift of the
machine's speed slows all of them; the figures are medians. On the CPU:

    torch_step.py --device cpu --dtype f32 --batch 4 --sequence 256 --steps 2 --warmup 1 --rounds 3
                  --ours build/bin/bench_step
"""

import argparse
import functools
import gc
import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import torch
    import torch_models
    from torch import nn
except ModuleNotFoundError:
    sys.exit("torch_step.py: PyTorch is not installed: pip install torch")


def makers_of_models(sizes, options):
    """Functions that make a model, one for each way to have a head."""
    if options.hf:
        from hf_models import HfModel  # Transformers is needed for --hf alone
        return [lambda: HfModel(sizes, True, options.experts),
                lambda: HfModel(sizes, False, options.experts)]
    return torch_models.makers(sizes, options.sequence)


def make_model(sizes, options, device):
    with torch.device(device):
        model = torch_models.first_of_size(makers_of_models(sizes, options), sizes)
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
    if options.masters == "bf16":
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss_of = torch.compile(model) if compiled else model
    shape = (options.batch // options.accumulation, options.sequence)
    ids = torch.randint(sizes.vocab, shape, device=device)
    targets = torch.randint(sizes.vocab, shape, device=device)

    def step():
        for _ in range(options.accumulation):
            with torch.autocast(device.type, torch.bfloat16, enabled=options.dtype == "bf16"):
                loss = loss_of(ids, targets) / options.accumulation
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


def our_keys(options):
    """The settings of bench_step that are not short options."""
    keys = [f"data.accumulation_steps={options.accumulation}", *options.keys]
    if options.masters == "bf16":
        keys += ["optimizer.master_dtype=bf16", "optimizer.state_dtype=bf16"]
    return keys


def our_milliseconds(options):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "step.json"
        command = [options.ours, "--model", options.model, "--batch", str(options.batch)]
        command += ["--sequence", str(options.sequence), "--steps", str(options.steps)]
        command += ["--device", options.device, "--dtype", options.dtype]
        command += ["--attention", options.attention, "--json", str(report), *our_keys(options)]
        subprocess.run(command, check=True)
        return json.loads(report.read_text(encoding="utf-8"))["step_ms"]


def measured(options, makers):
    """The median milliseconds of each program, by name. `makers` give functions that take --steps steps."""
    rounds, resident = {name: [] for name in makers}, {}
    for _ in range(options.rounds):
        for name, make in makers.items():
            run = resident.pop(name, None) or make()
            rounds[name] += run()
            if options.rounds > 1:
                resident[name] = run
                continue
            del run
            torch.compiler.reset()
            gc.collect()
            if options.device == "cuda":
                torch.cuda.empty_cache()
    return {name: statistics.median(values) for name, values in rounds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", default="gpt2", help="a preset of GPT-2 or Llama, or tiny")
    parser.add_argument("--vocab", type=int, default=0,
                        help="PyTorch's vocabulary; by default the model's, rounded up to 64")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of the batch")
    parser.add_argument("--masters", choices=["f32", "bf16"], default="f32",
                        help="the dtype of parameters and AdamW's moments")
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
    parser.add_argument("keys", nargs="*", help="keys to set for bench_step, as model.layers=8")
    options = parser.parse_args()
    if options.batch % options.accumulation:
        sys.exit(f"torch_step.py: --batch {options.batch} is no multiple of --accumulation {options.accumulation}")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_step.py: PyTorch finds no GPU; use --device cpu")
    torch.set_float32_matmul_precision("highest")  # in f32, as ours by default: no tf32

    sizes = torch_models.sizes_of(options.ours, options.model, options.vocab, 64, options.keys)
    tokens = options.batch * options.sequence
    flops = flops_per_step(sizes, options.batch, options.sequence)
    makers = {f"torch {v}": functools.partial(make_step, options, sizes, v == "compile")
              for v in options.variants.split(",")}
    makers["tessera"] = lambda: lambda: [our_milliseconds(options)]
    times = measured(options, makers)
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
