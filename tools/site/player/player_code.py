"""The rungs that the player shows, and the line of each that causes an event.

A line is found by its text, which must stand in the rung once.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
LADDER = ROOT / "examples/ladder"

STEP = {"forward": "backward(loss(step, rank_));", "backward": "backward(loss(step, rank_));",
        "last wait": "wait_for_communication(stream_.record());", "optimizer": "optimizer_->step(ladder::kLearningRate);"}
WHOLE_GRADIENTS = {"open gradients": "ladder::reset_gradients(*unit);"}
RESIDENT = {"ready": "wait_for_communication(gathered_[index_of(unit)]);", "gather": "gathered_[u] = world_.all_gather("}
SLOTS = {"ready": "wait_for_communication(slot_of(unit).ready);", "open": "ladder::open_values(unit, slot_of(unit).buffer);",
         "close": "ladder::close_values(unit);", "prefetch": "if (next(unit) != nullptr) gather(*next(unit));",
         "needed": "gather(unit);"}
GRADIENT_SLOTS = {"sent": "wait_for_communication(slot.sent);", "open gradients": "ladder::open_gradients(unit, slot.buffer);"}
# By strategy: the rung's file, and by kind of event the line that causes it.
RUNGS = {
    "ddp": ("3_ddp_overlapped.cpp", STEP | WHOLE_GRADIENTS | {
        "reduce": "world_.all_reduce({gradients_[index_of(unit)]}, after_computation()"}),
    "zero1": ("4_zero1.cpp", STEP | WHOLE_GRADIENTS | RESIDENT | {
        "reduce": "world_.reduce_scatter("}),
    "zero2": ("5_zero2.cpp", STEP | RESIDENT | GRADIENT_SLOTS | {"reduce": "slot.sent = world_.reduce_scatter("}),
    "zero3": ("6_zero3_prefetch.cpp", STEP | SLOTS | GRADIENT_SLOTS | {
        "gather": "slot.ready = world_.broadcast(", "reduce": "world_.reduce({windows[p]}, owned.owner"}),
    "fsdp": ("7_fsdp.cpp", STEP | SLOTS | GRADIENT_SLOTS | {
        "gather": "slot.ready = world_.all_gather(", "reduce": "slot.sent = world_.reduce_scatter("}),
    "hsdp": ("8_hsdp.cpp", STEP | SLOTS | GRADIENT_SLOTS | {
        "gather": "slot.ready = shards_->all_gather(", "reduce": "shards_->reduce_scatter(",
        "replicas": "slot.sent = replicas_->all_reduce("}),
}


def line_of(name, lines, text):
    """The number, from 1, of the one line with a text; of "gather(unit);" the one that is nothing else."""
    found = [number for number, line in enumerate(lines, 1) if text in line and
             (text != "gather(unit);" or line.strip() == text)]
    if len(found) != 1:
        sys.exit(f"player_code.py: {name} has {len(found)} lines with '{text}'; expected one. "
                 "Change RUNGS to the text of the line that causes the event.")
    return found[0]


def code():
    """Each strategy's rung, its lines, and the number of the line of each kind of event."""
    found = {}
    for strategy, (name, texts) in RUNGS.items():
        lines = (LADDER / name).read_text(encoding="utf-8").splitlines()
        found[strategy] = {"file": f"examples/ladder/{name}", "lines": lines,
                           "at": {kind: line_of(name, lines, text) for kind, text in texts.items()}}
    return found


def script():
    return f"'use strict';\nconst kRungs = {json.dumps(code())};\n"
