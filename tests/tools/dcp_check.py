"""Compares a folder of `tessera checkpoint convert` with PyTorch (pip install torch numpy).

    python tests/tools/dcp_check.py FOLDER [BEFORE]

torch.distributed.checkpoint loads every tensor and value of FOLDER, and torch.optim.AdamW takes the state of each
weight and makes a step. With BEFORE, a folder that PyTorch saved, all tensors must have its bits; its first words
"model." and "optim." may be left out or be "optimizer.".
"""

import pathlib
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata


def load(folder):
    """All tensors and values by their flat names."""
    metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {name: None if isinstance(entry, BytesStorageMetadata) else torch.empty(
        entry.size, dtype=entry.properties.dtype) for name, entry in metadata.items()}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def short(name):
    for word in ("model.model.", "model.lm_head."):
        if name.startswith(word):
            name = name.removeprefix("model.")
    return "optimizer." + name.removeprefix("optim.") if name.startswith("optim.") else name


def step_of_adamw(state):
    """A step of each weight with the loaded state and settings. Returns the number of weights."""
    weights = 0
    for name, weight in state.items():
        prefix = f"optimizer.state.{name}."
        if prefix + "exp_avg" not in state:
            continue
        group = {key.rsplit(".", 1)[1]: value for key, value in state.items()
                 if key.startswith(f"optimizer.param_groups.{name}.")}
        parameter = torch.nn.Parameter(weight.clone())
        optimizer = torch.optim.AdamW([parameter])
        optimizer.load_state_dict({
            "state": {0: {key.removeprefix(prefix): value.clone() for key, value in state.items()
                          if key.startswith(prefix)}},
            "param_groups": [{**group, "params": [0]}]})
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        assert optimizer.state[parameter]["step"] == state[prefix + "step"] + 1
        assert torch.isfinite(parameter).all() and not torch.equal(parameter, weight)
        weights += 1
    return weights


def main(folder, before=None):
    state = load(folder)
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    print(f"{folder}: {len(tensors)} tensors, {len(state) - len(tensors)} values, "
          f"AdamW updates {step_of_adamw(state)} weights")
    if before is None:
        return
    saved = {short(name): value for name, value in load(before).items() if isinstance(value, torch.Tensor)}
    assert saved.keys() == tensors.keys(), saved.keys() ^ tensors.keys()
    for name, value in saved.items():
        assert value.dtype == tensors[name].dtype and torch.equal(value, tensors[name]), name
    print(f"{before}: the same {len(saved)} tensors, bit for bit")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
