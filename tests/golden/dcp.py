"""Writes tests/golden/dcp/: folders of torch.distributed.checkpoint in the middle of a training.

  torchtitan    a Llama with torchtitan's names and Meta's rotation of neighbouring channels, under FSDP2
                on two ranks; the optimizer's state in a flat dictionary, as torchtitan saves it
  transformers  a tied LlamaForCausalLM on one rank; {"model": ..., "optim": ...} with nested dictionaries

Each folder has `.metadata` and `.distcp` files, saved after SAVED_STEPS steps of AdamW, and
expected.safetensors:

  w.<name>, m.<name>, v.<name>   f32, weights and moments when it was saved, by Transformers' names and layout
  input_ids, targets             i32 [steps, rows, tokens], of the steps behind
  losses                         f64 [steps], the losses of these steps in float64

Usage: python tests/golden/dcp.py       (README.md says what to install)
"""

import copy
import os
import pathlib
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     get_optimizer_state_dict)
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).parent / "dcp"
SAVED_STEPS, STEPS = 3, 4
ROWS, TOKENS = 4, 12
VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, THETA, EPSILON = 61, 24, 40, 2, 3, 1, 500000.0, 1e-5
HEAD = WIDTH // HEADS


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.wk = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.wv = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.wo = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x):
        def heads(y):
            return y.view(*y.shape[:2], -1, HEAD).transpose(1, 2)

        q, k, v = rotate(heads(self.wq(x))), rotate(heads(self.wk(x))), heads(self.wv(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).flatten(2))


def rotate(x):
    """Meta's: the pairs are the channels 2i and 2i + 1."""
    angles = torch.outer(torch.arange(x.shape[2]), THETA ** (-torch.arange(0, HEAD, 2) / HEAD))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(3).to(x)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(WIDTH, INNER, bias=False)
        self.w2 = nn.Linear(INNER, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, INNER, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm = nn.RMSNorm(WIDTH, eps=EPSILON)
        self.ffn_norm = nn.RMSNorm(WIDTH, eps=EPSILON)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Titan(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(LAYERS)})
        self.norm = nn.RMSNorm(WIDTH, eps=EPSILON)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for block in self.layers.values():
            x = block(x)
        return self.output(self.norm(x))


NAMES = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head",
         "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj",
         "attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj",
         "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
         "feed_forward.w3": "mlp.up_proj", "attention_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm"}


def as_transformers(name, tensor):
    """The name and layout that Transformers' convert_llama_weights_to_hf.py gives a tensor of Meta."""
    if name.startswith("layers."):
        _, layer, part, _ = name.replace("attention.", "attention/").replace(
            "feed_forward.", "feed_forward/").split(".")
        part = part.replace("/", ".")
        if part in ("attention.wq", "attention.wk"):
            tensor = tensor.view(-1, HEAD // 2, 2, WIDTH).transpose(1, 2).reshape(tensor.shape)
        return f"model.layers.{layer}.{NAMES[part]}.weight", tensor
    return NAMES[name.removesuffix(".weight")] + ".weight", tensor


def titan():
    return Titan(), lambda model, ids: model(ids)


def transformers():
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": THETA}, tie_word_embeddings=True,
        max_position_embeddings=64, bos_token_id=None, eos_token_id=None)
    return LlamaForCausalLM(config), lambda model, ids: model(input_ids=ids, use_cache=False).logits


def optimizer_of(model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)


def batches():
    generator = torch.Generator().manual_seed(5)
    return torch.randint(VOCABULARY, (2, SAVED_STEPS + STEPS, ROWS, TOKENS), generator=generator)


def step(model, logits_of, optimizer, ids, targets):
    optimizer.zero_grad()
    loss = F.cross_entropy(logits_of(model, ids).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(rank, ranks, make, nested, folder, address):
    """The steps before the checkpoint, and the steps behind it in float64 on rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=ranks)
    torch.manual_seed(7)
    model, logits_of = make()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((1.0 if p.dim() == 1 else 0.0) + 0.2 * torch.randn_like(p))
    exact = copy.deepcopy(model).double()
    if ranks > 1:
        for block in model.layers.values():
            fully_shard(block)
        fully_shard(model)
    optimizer = optimizer_of(model)
    ids, targets = batches()
    mine = slice(rank * ROWS // ranks, (rank + 1) * ROWS // ranks)
    for i in range(SAVED_STEPS):
        step(model, logits_of, optimizer, ids[i, mine], targets[i, mine])
    weights = get_model_state_dict(model)
    state = get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=not nested))
    dcp.save({"model": weights, "optim": state} if nested else {
        **weights, "optimizer": state, "train_state": {"step": SAVED_STEPS, "ntokens_seen": 144},
        "lr_scheduler": {"last_epoch": SAVED_STEPS}, "dataloader": {"dp_rank_0": b"position"}},
             checkpoint_id=folder)
    whole = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        write_expected(exact, logits_of, full, whole["state"], folder)
    dist.barrier()
    dist.destroy_process_group()


def write_expected(model, logits_of, weights, moments, folder):
    expected = {}

    def add(kind, name, tensor):
        name, tensor = as_transformers(name, tensor) if "tok_" in next(iter(weights)) else (name, tensor)
        expected[f"{kind}.{name}"] = tensor.contiguous()

    for name in moments:
        add("w", name, weights[name])
        add("m", name, moments[name]["exp_avg"])
        add("v", name, moments[name]["exp_avg_sq"])
    model.load_state_dict({name: tensor.double() for name, tensor in weights.items()})
    optimizer = optimizer_of(model)
    for name, p in model.named_parameters():
        optimizer.state[p] = {"step": moments[name]["step"].clone(),
                              "exp_avg": moments[name]["exp_avg"].double(),
                              "exp_avg_sq": moments[name]["exp_avg_sq"].double()}
    ids, targets = (tensor[SAVED_STEPS:] for tensor in batches())
    losses = [step(model, logits_of, optimizer, *batch) for batch in zip(ids, targets)]
    expected |= {"input_ids": ids.int(), "targets": targets.int(), "losses": torch.stack(losses)}
    print(folder, [round(loss.item(), 6) for loss in losses])
    save_file(expected, folder / "expected.safetensors", metadata={"torch": torch.__version__})


if __name__ == "__main__":
    for name, ranks, make, nested in (("torchtitan", 2, titan, False), ("transformers", 1, transformers, True)):
        shutil.rmtree(ROOT / name, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            torch.multiprocessing.spawn(
                train, (ranks, make, nested, ROOT / name, os.path.join(scratch, "address")), ranks)
