"""The rungs that the player shows, and the line of each that causes an event.

The script player_code.js has kCode[strategy] = { file, text: lines, lines: { kind of event: number of the line } }.
A line is found by its text, which must stand in the rung once.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PASS = {"pass": "backward(loss(step, rank_));", "optimizer": "optimizer_->step("}
SLOT = {"open gradients": "wait_for_communication(slot.sent);", "reduce": "world_.reduce_scatter("}
VALUES = {"open": "wait_for_communication(slot_of(unit).ready);", "close": "{ ladder::close_values(unit); }"}
GATHERED = "gathered_[u] = world_.all_gather("
RUNGS = {
    "ddp": ("3_ddp_overlapped", PASS | {"reduce": "world_.all_reduce("}),
    "zero1": ("4_zero1", PASS | {"reduce": "world_.reduce_scatter(", "gather": GATHERED}),
    "zero2": ("5_zero2", PASS | SLOT | {"gather": GATHERED}),
    "zero3": ("6_zero3_prefetch", PASS | VALUES | SLOT | {"gather": "world_.broadcast(", "reduce": "world_.reduce("}),
    "fsdp": ("7_fsdp", PASS | VALUES | SLOT | {"gather": "world_.all_gather("}),
    "hsdp": ("8_hsdp", PASS | VALUES | SLOT | {"gather": "shards_->all_gather(", "reduce": "shards_->reduce_scatter("}),
}


def code():
    """kCode, as a dictionary."""
    found = {}
    for strategy, (rung, events) in RUNGS.items():
        file = f"examples/ladder/{rung}.cpp"
        text = (ROOT / file).read_text(encoding="utf-8").splitlines()
        lines = {}
        for kind, part in events.items():
            numbers = [number for number, line in enumerate(text, 1) if part in line]
            if len(numbers) != 1:
                sys.exit(f"player_code.py: {file} has {len(numbers)} lines with '{part}'; expected one")
            lines[kind] = numbers[0]
        found[strategy] = {"file": file, "text": text, "lines": lines}
    return found


def script():
    return f"'use strict';\nconst kCode = {json.dumps(code(), indent=1)};\n"

