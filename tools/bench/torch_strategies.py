#!/usr/bin/env python3
"""PyTorch's DDP, FSDP1 and FSDP2 next to ours: the same model, weights, tokens, ranks and threads.

  tools/bench/torch_strategies.py --model gpt2 --ranks 2 --batch 4 --sequence 256 --steps 4

Needs torch and transformers, and build/bin/tessera with MPI. Every rank is a process, ours under mpirun (or a
thread, with --launch threads) and theirs with gloo on the CPU (`--device cuda`: NCCL). Both train GPT-2 in f32 with AdamW from the same
safetensors; PyTorch runs Transformers' model. The file of tokens holds one window, so that all rows of all
batches are this window, in any order of samples. Each strategy of theirs runs right after ours of the
same kind, and a ratio divides the medians of these neighbours.

  memory   on the CPU the largest resident set of a rank, less that of Python before the model
           (ours: as it is); on a GPU the peak of the allocator
  loss     of the first and the last step; they agree to rounding
"""
import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile

from torch_ranks import (add_options, median_ms, ours, process_group, read_window, resident_peak, tessera, torch_ranks,
                         torch_steps, write_window)

PAIRS = {"ddp": "ddp", "fsdp1": "fsdp_flat", "fsdp2": "fsdp"}  # theirs: ours


def wrapped(model, strategy, device):
    """The model under one of PyTorch's strategies, a block of the transformer at a time."""
    import functools
    import torch
    if strategy == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block
    if strategy == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={GPT2Block})
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True,
                                        device_id=device)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def torch_rank(rank, options, port, results, strategy, init):
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    device = process_group(rank, options, port)
    from transformers.models.gpt2 import modeling_gpt2  # before the baseline of memory
    before = resident_peak()
    model = transformers.GPT2LMHeadModel.from_pretrained(
        init, attn_implementation="sdpa", dtype=torch.float32,
        **dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0)).to(device)
    model.train()
    model = wrapped(model, strategy, device)
    window = read_window(options["tokens"], options["sequence"] + 1)
    rows = torch.tensor(window, device=device).repeat(options["batch"] // options["ranks"], 1)

    def loss_of():
        logits = model(input_ids=rows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    ms, losses = torch_steps(loss_of, model.parameters(), options["steps"])
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else resident_peak() - before
    results.put((rank, ms, losses, peak))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def row(name, result, tokens, baseline=None):
    ms = median_ms(result)
    ratio = "" if baseline is None else f"{ms / median_ms(baseline):.2f}"
    print(f"{name:<18} {ms:>10.1f} {1e3 * tokens / ms:>10.0f} {result['peak'] / 2**20:>11.1f} "
          f"{result['losses'][0]:>10.6f} {result['losses'][-1]:>10.6f} {ratio:>12}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2", help="a GPT-2 preset of tessera")
    parser.add_argument("--steps", type=int, default=4, help="the first is not timed")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--strategies", default="ddp,fsdp1,fsdp2")
    add_options(parser, batch=4)
    options = parser.parse_args()
    if options.batch % options.ranks:
        sys.exit(f"--batch {options.batch} is not a multiple of --ranks {options.ranks}")
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "") if options.device == "cpu" \
        else os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(options.ranks))))
    tokens = options.batch * options.sequence
    report = []
    with tempfile.TemporaryDirectory() as scratch:
        options.tokens = f"{scratch}/window.bin"
        write_window(options.tokens, options.sequence + 1)
        tessera(options, "ddp", f"{scratch}/init", "train.steps=1", "optimizer.learning_rate=0")
        init = f"{scratch}/init/model"
        print(f"{options.model}, f32, batch {options.batch} x {options.sequence}, {options.ranks} ranks on "
              f"{options.device} x {options.threads} threads, {options.steps} steps\n")
        print(f"{'':<18} {'ms/step':>10} {'tokens/s':>10} {'memory MiB':>11} {'first loss':>10} {'last loss':>10} "
              f"{'theirs/ours':>12}")
        for strategy in options.strategies.split(","):
            our = ours(options, PAIRS[strategy], f"{scratch}/{strategy}/run", init)
            row(f"tessera {PAIRS[strategy]}", our, tokens)
            their = torch_ranks(torch_rank, options, strategy, init)
            row(f"PyTorch {strategy}", their, tokens, our)
            report += [{"program": "tessera", "strategy": PAIRS[strategy], **our},
                       {"program": "PyTorch", "strategy": strategy, **their}]
    if options.json:
        entries = {key: value for key, value in vars(options).items() if key not in ("tokens", "json")}
        pathlib.Path(options.json).write_text(json.dumps({"options": entries, "strategies": report}, indent=1))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
