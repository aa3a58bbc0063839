#!/usr/bin/env python3
"""PyTorch's tensor and context parallelism next to ours: the same model, weights, tokens, ranks and threads.

  tools/bench/torch_parallel.py --model gpt2 --batch 2 --sequence 256 --steps 4 --rounds 3

Needs torch, and build/bin/tessera with MPI and bench_step next to it. Every rank is a process on the CPU, ours
under mpirun (or a thread, with --launch threads) and theirs with gloo.
All ranks share out one model, GPT-2 or Llama 3, in f32 with AdamW. Ours and theirs take turns, --rounds times.
A ratio divides the medians of neighbours in time, and the median of these ratios is printed.

  tensor    ours: sharding.tensor_parallel; theirs: parallelize_module, with norms by tokens, and with the
            vocabulary divided in the embedding and in loss_parallel
  context   ours: sharding.context_parallel; theirs: context_parallel under DDP. Where it cannot run, its error
            is printed, and attention to gathered keys and values runs instead, on the same pieces of a row
  memory    the largest resident set of a rank, theirs less that of Python before the model
  loss      of the first and the last step; `differ` is the largest relative difference of a step
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import struct
import sys
import tempfile

from torch_ranks import (add_options, median_ms, ours, process_group, read_window, resident_peak, tessera, torch_ranks,
                         torch_steps, write_window)

AGREEMENT = 1e-5  # of the first loss, relative: it comes before any update

# From names in Hugging Face's files to those of torch_models.
NAMES = {r"^(transformer|model)\.": "", r"^(h|layers)\.": "blocks.", r"attn\.c_attn": "qkv", r"attn\.c_proj": "proj",
         r"mlp\.c_fc": "fc", r"mlp\.c_proj": "out", "embed_tokens": "embedding", "input_layernorm": "norm_1",
         "post_attention_layernorm": "norm_2", "self_attn": "attention", "_proj": "", "lm_head": "head"}


def renamed(name):
    for pattern, replacement in NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


def read_weights(path):
    """The tensors of a file of safetensors in f32, by torch_models' names. GPT-2's matrices are transposed there."""
    import torch
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensor = data[begin // 4:end // 4].view(entry["shape"])
        if re.search(r"\.c_\w+\.weight$", name):
            tensor = tensor.t()
        weights[renamed(name)] = tensor
    return weights


def make_model(options, sizes, init):
    import torch_models
    model = torch_models.first_of_size(torch_models.makers(sizes, options["sequence"]), sizes)
    model.load_state_dict(read_weights(f"{init}/model.safetensors"))
    return model


def divide_layers(model, ranks):
    """Gives every rank its part of the layers. Tokens are divided between layers."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                                   SequenceParallel, parallelize_module)

    def table(tokens):
        return RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens)

    def by_tokens(*others):  # gathers the tokens for a module, once
        return PrepareModuleInput(input_layouts=(Shard(1), *others), desired_input_layouts=(Replicate(), *others))

    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=Shard(1))
    gathered_columns = ColwiseParallel(input_layouts=Shard(1))
    gpt2 = {"wte": table(Shard(1)), "wpe": table(Shard(0)), "ln_f": SequenceParallel(),
            "blocks.*.ln_1": SequenceParallel(), "blocks.*.qkv": gathered_columns, "blocks.*.proj": rows,
            "blocks.*.ln_2": SequenceParallel(), "blocks.*.fc": gathered_columns, "blocks.*.out": rows}
    llama = {"embedding": table(Shard(1)), "norm": SequenceParallel(), "blocks.*.norm_1": SequenceParallel(),
             "blocks.*.attention": by_tokens(None, None), "blocks.*.attention.q": columns,
             "blocks.*.attention.k": columns, "blocks.*.attention.v": columns, "blocks.*.attention.o": rows,
             "blocks.*.norm_2": SequenceParallel(), "blocks.*.mlp": by_tokens(), "blocks.*.mlp.gate": columns,
             "blocks.*.mlp.up": columns, "blocks.*.mlp.down": rows}
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if ".qkv." in name:  # a rank's part of the rows has its queries, keys and values
                parts = tensor.view(3, ranks, -1, *tensor.shape[1:])
                tensor.copy_(parts.transpose(0, 1).reshape(tensor.shape).clone())
    parallelize_module(model, init_device_mesh("cpu", (ranks,)), gpt2 if hasattr(model, "wpe") else llama)


def tensor_rank(rank, options, port, results, sizes, init):
    process_group(rank, options, port)
    import torch
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import loss_parallel
    before = resident_peak()
    model = make_model(options, sizes, init)
    divide_layers(model, options["ranks"])
    ids, targets = batch(options)

    def loss_of():
        hidden = model.hidden(ids).redistribute(placements=[Replicate()])
        return model.cross_entropy(hidden, targets).to_local()

    with loss_parallel():
        ms, losses = torch_steps(loss_of, model.parameters(), options["steps"])
    results.put((rank, ms, losses, resident_peak() - before))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def batch(options):
    """Ids and targets [batch, sequence]: every row is the window."""
    import torch
    rows = torch.tensor(read_window(options["tokens"], options["sequence"] + 1)).repeat(options["batch"], 1)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def gathered_attention(rank, ranks, sequence):
    """Attention of a rank's two pieces of a row, one from either end, to the gathered keys and values."""
    import torch
    from torch.distributed._functional_collectives import all_gather_single_autograd
    size, own = sequence // (2 * ranks), (rank, 2 * ranks - 1 - rank)
    masks = [torch.ones(size, (piece + 1) * size, dtype=torch.bool).tril(piece * size) for piece in own]
    order = [2 * min(piece, 2 * ranks - 1 - piece) + (piece >= ranks) for piece in range(2 * ranks)]

    def attend(q, k, v):
        gathered = all_gather_single_autograd(torch.stack((k, v)), gather_dim=3, group=torch.distributed.group.WORLD)
        pieces = gathered.chunk(2 * ranks, dim=3)
        keys, values = torch.cat([pieces[piece] for piece in order], dim=3)
        return torch.cat([torch.nn.functional.scaled_dot_product_attention(
            queries, keys[:, :, :mask.shape[1]], values[:, :, :mask.shape[1]], mask,
            enable_gqa=q.shape[1] != k.shape[1]) for queries, mask in zip(q.chunk(2, dim=2), masks)], dim=2)

    positions = torch.cat([torch.arange(piece * size, (piece + 1) * size) for piece in own])
    return attend, positions


def context_rank(rank, options, port, results, sizes, init, gathered):
    process_group(rank, options, port)
    import torch
    import torch_models
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    before = resident_peak()
    model = make_model(options, sizes, init)
    ids, targets = batch(options)
    positions, ranks = torch.arange(options["sequence"]), options["ranks"]
    divided = contextlib.nullcontext()
    if gathered:
        attend, positions = gathered_attention(rank, ranks, options["sequence"])
        for module in model.modules():
            if isinstance(module, torch_models.CausalAttention):
                module.attend = attend
        ids, targets = ids[:, positions], targets[:, positions]
    else:
        divided = context_parallel(init_device_mesh("cpu", (ranks,)), buffers=[ids, targets, positions],
                                   buffer_seq_dims=[1, 1, 0])
    model = torch.nn.parallel.DistributedDataParallel(model)
    with divided:
        ms, losses = torch_steps(lambda: model(ids, targets, positions), model.parameters(), options["steps"])
    results.put((rank, ms, losses, resident_peak() - before))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def context_attention(options, sizes, init):
    """Whether keys and values are gathered here: where PyTorch's context_parallel fails. It prints the reason."""
    import torch.multiprocessing as processes
    try:
        torch_ranks(context_rank, argparse.Namespace(**vars(options) | {"steps": 1}), sizes, init, False)
    except processes.ProcessRaisedException as error:
        print(f"  PyTorch's context_parallel: {str(error).strip().splitlines()[-1]}\n"
              "  Below, PyTorch attends to gathered keys and values.")
        return True
    return False


def print_row(name, turns, tokens, *comparison):
    ms = statistics.median(median_ms(turn) for turn in turns)
    print(f"{name:<16} {ms:>9.1f} {1e3 * tokens / ms:>9.0f} {max(turn['peak'] for turn in turns) / 2**20:>11.1f} "
          f"{turns[0]['losses'][0]:>11.6f} {turns[0]['losses'][-1]:>11.6f} " + " ".join(comparison), flush=True)


def differences(turns):
    """Relative, of the losses of each step; the largest of all turns."""
    pairs = [zip(our["losses"], their["losses"]) for our, their in turns]
    return [max(abs(a - b) / abs(a) for a, b in step) for step in zip(*pairs)]


def compare(cut, options, sizes, init, scratch):
    """Trains in turns, prints two rows and returns them."""
    function, arguments = tensor_rank, (sizes, init)
    if cut == "context":
        function, arguments = context_rank, (sizes, init, context_attention(options, sizes, init))
    turns = [(ours(options, "ddp", f"{scratch}/{cut}{turn}/run", init, f"sharding.{cut}_parallel={options.ranks}"),
              torch_ranks(function, options, *arguments)) for turn in range(options.rounds)]
    differ = differences(turns)
    ratio = statistics.median(median_ms(their) / median_ms(our) for our, their in turns)
    our, their = zip(*turns)
    tokens = options.batch * options.sequence
    print_row(f"tessera {cut}", our, tokens)
    print_row(f"PyTorch {cut}", their, tokens, f"{ratio:>11.2f} {max(differ):>8.1e}")
    if differ[0] > AGREEMENT:
        sys.exit(f"torch_parallel.py: {cut}: the first losses differ by {differ[0]:.1e}, more than {AGREEMENT}")
    return {"cut": cut, "tessera": our, "PyTorch": their, "ratio": ratio, "differ": differ}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2", help="a preset of tessera: GPT-2, or Llama 3 with a tied head")
    parser.add_argument("--steps", type=int, default=4, help="of a turn; its first is not timed")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each takes")
    parser.add_argument("--cuts", default="tensor,context")
    add_options(parser, batch=2)
    parser.set_defaults(device="cpu")
    options = parser.parse_args()
    pieces = 2 * options.ranks  # of a row, for context parallelism
    if options.sequence % pieces:
        sys.exit(f"--sequence {options.sequence} is not a multiple of {pieces}: a rank has two pieces of a row")
    try:
        import torch_models
    except ModuleNotFoundError:
        sys.exit("torch_parallel.py: PyTorch is not installed: pip install torch")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sizes = torch_models.sizes_of(pathlib.Path(options.tessera).parent / "bench_step", options.model)
    with tempfile.TemporaryDirectory() as scratch:
        options.tokens = f"{scratch}/window.bin"
        write_window(options.tokens, options.sequence + 1, sizes.vocab)
        one = argparse.Namespace(**vars(options) | {"ranks": 1, "batch": 1})
        tessera(one, "ddp", f"{scratch}/init", "train.steps=1", "optimizer.learning_rate=0")
        print(f"{options.model}, f32, batch {options.batch} x {options.sequence}, {options.ranks} ranks on cpu x "
              f"{options.threads} threads, {options.rounds} turns of {options.steps} steps\n")
        print(f"{'':<16} {'ms/step':>9} {'tokens/s':>9} {'memory MiB':>11} {'first loss':>11} {'last loss':>11} "
              f"{'theirs/ours':>11} {'differ':>8}")
        report = [compare(cut, options, sizes, f"{scratch}/init/model", scratch) for cut in options.cuts.split(",")]
    if options.json:
        entries = {key: value for key, value in vars(options).items() if key not in ("tokens", "json")}
        pathlib.Path(options.json).write_text(json.dumps({"options": entries, "cuts": report}, indent=1))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
