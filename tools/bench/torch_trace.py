#!/usr/bin/env python3
"""Traces one training step of PyTorch's FSDP2, in the format that docs/figures/timeline.py draws.

  tools/bench/torch_trace.py trace.json              FSDP2 as it comes
  tools/bench/torch_trace.py trace.json --prefetch   with asynchronous gathers, one block ahead in forward

Needs torch and transformers. Two processes with gloo on the CPU, one thread each, train the GPT-2 of
examples/trace_step.cpp: same layers, heads, width, tokens, norm and optimizer. Five steps warm up.

The events are those that FSDP2 itself gives to torch.profiler. The table says which becomes which:

  FSDP::pre_forward ... post_forward             forward UNIT; the root's parts are those without the blocks
  FSDP::pre_backward ... post_backward_reduce    backward UNIT
  FSDP::all_gather, begin                        gather UNIT
  FSDP::all_gather_copy_out, end                 open UNIT
  FSDP::post_forward, post_backward_reshard      close UNIT: the last of them before the next copy_out
  FSDP::post_backward_reduce, begin              reduce UNIT
  gloo:*                                         all_gather UNIT, reduce_scatter UNIT: from the time a
                                                 thread of gloo begins it to its end
  Work.wait, _c10d_functional::wait_tensor       exposed communication: the step's thread is blocked
  fsdp::all_gather_copy_in, chunk_cat_*          copy in UNIT
  fsdp::split_with_sizes_copy                    copy out UNIT

Work.wait has no event of its own in PyTorch 2.15; this program adds one around it.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import tempfile

RANKS, WARM_UP = 2, 5
TOKENS, VOCABULARY, LAYERS, HEADS, WIDTH = 64, 2048, 4, 6, 384  # those of examples/trace_step.cpp

WAITS = {"Work.wait", "_c10d_functional::wait_tensor"}
COPIES = {"fsdp::all_gather_copy_in": "copy in", "fsdp::chunk_cat_mixed_dtype": "copy in",
          "fsdp::split_with_sizes_copy": "copy out"}
COLLECTIVES = {"c10d::_allgather_base_": "all_gather", "c10d::_reduce_scatter_base_": "reduce_scatter",
               "c10d::allreduce_": "all_reduce"}
PASSES = {"forward": ("FSDP::pre_forward", "FSDP::post_forward"),
          "backward": ("FSDP::pre_backward", "FSDP::post_backward_reduce")}
ROOT = "root"


class Range:
    """An event of the profiler, times in microseconds. The unit of "FSDP::all_gather (model.h.0)" is h.0."""

    def __init__(self, event):
        self.begin, self.end = event["ts"], event["ts"] + event["dur"]
        self.thread = event["tid"]
        label = re.fullmatch(r"(FSDP::\w+)(?: \((.*)\))?", event["name"])
        self.what = label[1] if label else event["name"]
        self.unit = ".".join((label[2] or ROOT).split(".")[-2:]) if label else None

    def holds(self, other):
        return self.begin <= other.begin and other.end <= self.end


def ranges_of(events):
    """(those of the thread that runs the step, those of gloo), each in order of time."""
    ranges = sorted((Range(event) for event in events if event.get("ph") == "X"), key=lambda r: (r.begin, -r.end))
    threads = {r.thread for r in ranges if r.what.startswith("FSDP::")}
    if len(threads) != 1:
        raise ValueError(f"torch_trace: FSDP2's events lie on {len(threads)} threads; expected 1")
    step = [r for r in ranges if r.thread in threads]
    return step, [r for r in ranges if r.what.startswith("gloo:")]


def without(span, holes):
    """The parts of (begin, end) outside the holes, which are in order and do not overlap."""
    begin, end = span
    for hole_begin, hole_end in holes:
        if begin < hole_begin < end:
            yield begin, hole_begin
        if begin < hole_end:
            begin = hole_end
    if begin < end:
        yield begin, end


def passes(step, kind):
    """(begin, end, name) of the units' passes. The root's pass encloses those of the blocks."""
    first, last = PASSES[kind]
    ends = {r.unit: r.end for r in step if r.what == last}
    whole = {r.unit: (r.begin, ends[r.unit]) for r in step if r.what == first}
    blocks = sorted(span for unit, span in whole.items() if unit != ROOT)
    for unit, span in whole.items():
        # The root between two blocks does nothing: only its parts outside all of them count.
        holes = [(blocks[0][0], max(end for _, end in blocks))] if unit == ROOT and blocks else []
        for begin, end in without(span, holes):
            yield begin, end, f"{kind} {unit}"


def marks(step):
    """(time, name) of the events in the life of the units' parameters."""
    closing = {}  # by unit: the time at which it closes, unless a later event comes before its next gather
    for r in step:
        if r.what == "FSDP::all_gather":
            yield r.begin, f"gather {r.unit}"
        elif r.what == "FSDP::post_backward_reduce":
            yield r.begin, f"reduce {r.unit}"
        elif r.what == "FSDP::all_gather_copy_out":
            if r.unit in closing:
                yield closing.pop(r.unit), f"close {r.unit}"
            yield r.end, f"open {r.unit}"
        elif r.what in ("FSDP::post_forward", "FSDP::post_backward_reshard"):
            closing[r.unit] = r.end
    for unit, time in closing.items():
        yield time, f"close {unit}"


def unit_around(step, inner):
    """The unit of the innermost range of FSDP2 that holds this one, or None."""
    around = [r for r in step if r.unit is not None and r.holds(inner)]
    return around[-1].unit if around else None


def collectives(step, gloo):
    """(begin, end, name). gloo takes the collectives from a queue: the nth that begins is the nth issued."""
    issued = [r for r in step if r.what in COLLECTIVES]
    if len(issued) != len(gloo):
        raise ValueError(f"torch_trace: {len(issued)} collectives were issued and gloo ran {len(gloo)}")
    for call, run in zip(issued, gloo):
        yield run.begin, run.end, f"{COLLECTIVES[call.what]} {unit_around(step, call) or 'gradient norm'}"


def spans(step):
    """(begin, end, name) of the lane "compute"."""
    for kind in PASSES:
        yield from passes(step, kind)
    for r in step:
        if r.what in WAITS:
            yield r.begin, r.end, "exposed communication"
        elif r.what in COPIES:
            yield r.begin, r.end, f"{COPIES[r.what]} {unit_around(step, r)}"
        elif r.what.startswith("Optimizer.step#"):
            yield r.begin, r.end, "optimizer"


def converted(events, rank):
    """The events of one rank's profiler, in the names of ours."""
    step, gloo = ranges_of(events)
    for track, name in enumerate(["communication", "compute"]):
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}}
    for track, timed in enumerate([collectives(step, gloo), spans(step)]):
        for begin, end, name in sorted(timed):
            yield {"ph": "X", "name": name, "pid": rank, "tid": track, "ts": begin, "dur": end - begin}
    for time, name in sorted(marks(step)):
        yield {"ph": "i", "name": name, "pid": rank, "tid": 1, "ts": time, "s": "t"}


def trace_of(ranks):
    """The text of a trace, an event a line. `ranks` are the events of each rank's profiler, whose clocks
    agree. The first event begins at 0."""
    events = [event for rank, own in enumerate(ranks) for event in converted(own, rank)]
    start = min(event["ts"] for event in events if "ts" in event)
    for event in events:
        for key, zero in (("ts", start), ("dur", 0)):
            if key in event:
                event[key] = round(event[key] - zero, 3)
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{{"traceEvents":[\n{lines}\n]}}\n'


def model_with_loss():
    """GPT-2 and its loss in one module, so that the root's forward pass ends with the loss, as ours."""
    import torch
    import transformers

    class ModelWithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
                vocab_size=VOCABULARY, n_positions=TOKENS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
                attn_implementation="sdpa"))

        def forward(self, tokens):
            logits = self.model(input_ids=tokens, use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    torch.manual_seed(1)
    return ModelWithLoss()


def sharded(model, prefetch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (RANKS,))
    blocks = list(model.model.transformer.h)
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if prefetch:
        model._set_unshard_async_op(True)  # PyTorch has no public name for it
        for this, following in zip([model, *blocks], blocks):
            this.set_modules_to_forward_prefetch([following])
    return model


def record_waits():
    """Gives every wait for a collective an event of the profiler."""
    import torch
    wait = torch.distributed.Work.wait

    def recorded(work, *arguments):
        with torch.profiler.record_function("Work.wait"):
            return wait(work, *arguments)

    torch.distributed.Work.wait = recorded


def trace_rank(rank, prefetch, folder):
    import torch
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank,
                                         world_size=RANKS)
    record_waits()
    model = sharded(model_with_loss(), prefetch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(rank)

    def train_step():
        model(torch.randint(VOCABULARY, (1, TOKENS), generator=generator)).backward()
        torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).full_tensor()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARM_UP):
        train_step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.distributed.barrier()
        train_step()
    profiler.export_chrome_trace(f"{folder}/{rank}.json")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def steps_of(paths):
    """The events of each rank's file, without the barrier before the step."""
    traces = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in paths]
    if len({trace["baseTimeNanoseconds"] for trace in traces}) != 1:
        raise ValueError("torch_trace: the ranks' times count from different moments; run it again")
    for trace in traces:
        events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        begin = min(event["ts"] for event in events if event["name"] == "FSDP::root_pre_forward")
        yield [event for event in events if event["ts"] >= begin]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="the JSON file to write")
    parser.add_argument("--prefetch", action="store_true", help="asynchronous gathers, one block ahead")
    options = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import torch.multiprocessing as processes
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(trace_rank, (options.prefetch, folder), nprocs=RANKS)
        trace = trace_of(steps_of([f"{folder}/{rank}.json" for rank in range(RANKS)]))
    pathlib.Path(options.trace).write_text(trace, encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main()
