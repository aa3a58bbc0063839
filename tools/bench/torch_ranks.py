"""The same training by ranks of Tessera and of PyTorch, for torch_strategies.py and torch_parallel.py.

The file of tokens holds one window, so that all rows of all batches are this window, in any order of
samples. Every rank of theirs is a process with gloo on the CPU and NCCL on a GPU. Ours are processes under mpirun,
or threads of one process.
"""

import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import statistics
import struct
import subprocess
import sys
import time

LEARNING_RATE = 1e-4


def add_options(parser, batch):
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--batch", type=int, default=batch, help="rows of all ranks")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--launch", default="mpirun", choices=["mpirun", "threads"],
                        help="our ranks; threads: those that tessera starts itself, on GPUs processes. On the CPU "
                             "their memory is the mean of the ranks")
    parser.add_argument("--tessera", default="build/bin/tessera")
    parser.add_argument("--json", help="also write the figures to this file")


def tessera(options, strategy, folder, *overrides):
    """Trains with ours. The lines of metrics.jsonl about steps."""
    flat = strategy.endswith("_flat")
    settings = {
        "data.train": options.tokens, "data.batch_size": options.batch,
        "data.sequence_length": options.sequence, "model.preset": options.model,
        "optimizer.learning_rate": LEARNING_RATE, "optimizer.schedule": "constant",
        "optimizer.weight_decay": 0, "optimizer.clip_norm": 0, "train.steps": options.steps,
        "train.log_every": 1, "train.dir": folder, "train.checkpoint_every": 0,
        "runtime.threads": options.threads, "runtime.device": options.device,
        "sharding.strategy": strategy.removesuffix("_flat"),
        "sharding.flatten_parameters": str(flat).lower()}
    pathlib.Path(folder).parent.mkdir(parents=True, exist_ok=True)
    empty = pathlib.Path(folder).parent / "empty.yaml"
    empty.write_text("train:\n  progress: lines\n")
    processes = ["mpirun", "-np", str(options.ranks), "--oversubscribe", "--bind-to", "none"]
    if options.launch == "threads":
        processes, settings["runtime.ranks"] = [], options.ranks
    command = [*processes, options.tessera, "train", str(empty),
               *(f"{key}={value}" for key, value in settings.items()), *overrides]
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in open(pathlib.Path(folder) / "metrics.jsonl", encoding="utf-8")]
    return [line for line in lines if "event" not in line]


def resident_peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(*arguments):
    lines = tessera(*arguments)
    return lines, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def ours(options, strategy, folder, init, *overrides):
    """Milliseconds, losses and memory of a run of tessera. A rank is the largest child of a new process."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        lines, peak = alone.submit(measured, options, strategy, folder, f"model.init_from={init}",
                                    *overrides).result()
    if options.launch == "threads":
        peak /= options.ranks
    if options.device != "cpu":
        peak = max(line["peak_bytes"]["total"] for line in lines)
    return {"ms": [line["step_ms"] for line in lines], "losses": [line["loss"] for line in lines], "peak": peak}


def read_window(path, length):
    with open(path, "rb") as file:
        file.seek(1024)
        return list(struct.unpack(f"<{length}H", file.read(2 * length)))


def write_window(path, length, vocab=50257):
    """llm.c's format. The tokens are any ids of the vocabulary."""
    tokens = [(7919 * i * i + 104729 * i) % vocab for i in range(length)]
    header = struct.pack("<256i", 20240520, 1, length, *[0] * 253)
    pathlib.Path(path).write_bytes(header + struct.pack(f"<{length}H", *tokens))


def process_group(rank, options, port):
    """Makes this process a rank of PyTorch's. Its device."""
    import torch
    torch.set_num_threads(options["threads"])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    gpu = options["device"] != "cpu"
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if gpu else "gloo", rank=rank, world_size=options["ranks"])
    return device


def torch_steps(loss_of, parameters, steps):
    """Milliseconds and loss of each step. A step begins when all ranks have ended the one before."""
    import torch
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    ms, losses = [], []
    for _ in range(steps):
        torch.distributed.barrier()
        begin = time.perf_counter()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        ms.append(1e3 * (time.perf_counter() - begin))
    return ms, losses


def torch_ranks(function, options, *arguments):
    """Runs function(rank, options, port, results, *arguments) on every rank. It puts (rank, ms, losses, peak)."""
    import torch.multiprocessing as processes
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = processes.get_context("spawn").SimpleQueue()
    processes.spawn(function, (vars(options), port, results, *arguments), nprocs=options.ranks)
    _, ms, losses, peaks = zip(*sorted(results.get() for _ in range(options.ranks)))
    return {"ms": [max(step) for step in zip(*ms)], "losses": [statistics.fmean(step) for step in zip(*losses)],
            "peak": max(peaks)}


def median_ms(result):
    """Of all steps but the first, which warms up."""
    return statistics.median(result["ms"][1:] or result["ms"])
