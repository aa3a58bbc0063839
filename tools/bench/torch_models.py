"""GPT-2, Llama, Qwen2.5 and Qwen3-MoE in PyTorch, with the sizes that bench_step prints, for torch_step.py and
torch_parallel.py.

Ids and targets are [B, T]. Both models give the mean loss of the tokens. Their two parts, hidden() and
cross_entropy(), are for a caller that divides the vocabulary. `positions` [T] are the tokens' places in
their row, for a caller with a part of every row; None: 0 to T - 1.
"""

import functools
import json
import subprocess
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


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


def sizes_of(bench_step, model, vocab=0, multiple=1, overrides=()):
    """The sizes of the model, from bench_step. Without `vocab` its vocabulary, rounded up to `multiple`."""
    command = [bench_step, "--model", model, "--print-shape", *overrides]
    shape = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    vocab = vocab or -(-shape["vocab_size"] // multiple) * multiple
    return Sizes(vocab=vocab, model_vocab=shape.pop("vocab_size"), **shape)


class CausalAttention(nn.Module):
    """[B, T, heads * head_size] each, to the same shape as q. `attend` works on [B, heads, T, head_size]."""

    def __init__(self, head_size):
        super().__init__()
        self.head_size, self.attend = head_size, self.attend_to_earlier

    @staticmethod
    def attend_to_earlier(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])

    def forward(self, q, k, v):
        q, k, v = (x.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for x in (q, k, v))
        return self.attend(q, k, v).transpose(1, 2).flatten(2)


class Gpt2Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width, inner = sizes.width, sizes.mlp_width
        self.attention = CausalAttention(sizes.head_size)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).chunk(3, dim=-1)
        x = x + self.proj(self.attention(q, k, v))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class LanguageModel(nn.Module):
    def cross_entropy(self, hidden, targets):
        logits = F.linear(hidden, self.head_table())
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def forward(self, ids, targets, positions=None):
        return self.cross_entropy(self.hidden(ids, positions), targets)


class Gpt2(LanguageModel):
    def __init__(self, sizes):
        super().__init__()
        self.wte = nn.Embedding(sizes.vocab, sizes.width)
        self.wpe = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.ModuleList(Gpt2Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.width)

    def head_table(self):
        return self.wte.weight

    def hidden(self, ids, positions=None):
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.wte(ids) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x)


def rotate(x, cos, sin, head_size):
    """RoPE on x [B, T, heads * head_size], half-split pairs."""
    x = x.unflatten(-1, (-1, head_size))
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(2)


class LlamaAttention(nn.Module):
    """`qkv_bias`: Qwen2.5's. A model with experts, Qwen3-MoE, has norms of queries and keys."""

    def __init__(self, sizes, qkv_bias):
        super().__init__()
        self.head_size, self.attention = sizes.head_size, CausalAttention(sizes.head_size)
        queries, keys = sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
        self.q, self.k, self.v = (nn.Linear(sizes.width, size, bias=qkv_bias) for size in (queries, keys, keys))
        self.o = nn.Linear(queries, sizes.width, bias=False)
        norms = (nn.RMSNorm(sizes.head_size, eps=1e-6) if sizes.experts else nn.Identity() for _ in range(2))
        self.q_norm, self.k_norm = norms

    def forward(self, y, cos, sin):
        q, k = (norm(x.unflatten(-1, (-1, self.head_size))).flatten(2)
                for norm, x in ((self.q_norm, self.q(y)), (self.k_norm, self.k(y))))
        q, k = (rotate(x, cos, sin, self.head_size) for x in (q, k))
        return self.o(self.attention(q, k, self.v(y)))


class GatedMlp(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.gate, self.up = (nn.Linear(sizes.width, sizes.mlp_width, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.mlp_width, sizes.width, bias=False)

    def forward(self, y):
        return self.down(F.silu(self.gate(y)) * self.up(y))


class Experts(nn.Module):
    """Qwen3-MoE's feed-forward layer. Rows are sorted by their experts, for one grouped product."""

    def __init__(self, sizes):
        super().__init__()
        self.count, self.per_token = sizes.experts, sizes.experts_per_token
        self.router = nn.Linear(sizes.width, sizes.experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(sizes.experts, sizes.width, 2 * sizes.expert_width))
        self.down = nn.Parameter(torch.empty(sizes.experts, sizes.expert_width, sizes.width))

    def forward(self, y):
        rows = y.flatten(0, 1)
        weights, chosen = self.router(rows).float().softmax(dim=-1).topk(self.per_token)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        dtype = torch.bfloat16 if torch.is_autocast_enabled(y.device.type) else y.dtype
        order = chosen.flatten().argsort()
        ends = torch.histc(chosen.float(), bins=self.count, min=0, max=self.count - 1).cumsum(0).int()
        sorted_rows = rows[order // self.per_token].to(dtype)
        gate, up = F.grouped_mm(sorted_rows, self.gate_up.to(dtype), offs=ends).chunk(2, dim=-1)
        results = F.grouped_mm(F.silu(gate) * up, self.down.to(dtype), offs=ends)
        of_tokens = results[order.argsort()].unflatten(0, (-1, self.per_token))
        return (of_tokens * weights[..., None].to(dtype)).sum(dim=1).view_as(y)


class LlamaBlock(nn.Module):
    def __init__(self, sizes, qkv_bias):
        super().__init__()
        self.norm_1, self.norm_2 = (nn.RMSNorm(sizes.width, eps=1e-5) for _ in range(2))
        self.attention = LlamaAttention(sizes, qkv_bias)
        self.mlp = Experts(sizes) if sizes.experts else GatedMlp(sizes)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm_1(x), cos, sin)
        return x + self.mlp(self.norm_2(x))


class Llama(LanguageModel):
    """Llama 3, Qwen2.5 or Qwen3-MoE, for rows of `sequence` tokens."""

    def __init__(self, sizes, sequence, tied, qkv_bias=False):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocab, sizes.width)
        self.blocks = nn.ModuleList(LlamaBlock(sizes, qkv_bias) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.head = None if tied else nn.Linear(sizes.width, sizes.vocab, bias=False)
        steps = torch.arange(0, sizes.head_size, 2) / sizes.head_size
        angles = torch.arange(sequence)[:, None] * 500_000.0 ** -steps
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def head_table(self):
        return (self.head or self.embedding).weight

    def hidden(self, ids, positions=None):
        x = self.embedding(ids)
        dtype = torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else x.dtype
        cos, sin = ((table if positions is None else table[positions]).to(dtype)
                    for table in (self.cos, self.sin))
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)


def makers(sizes, sequence):
    """Functions that make a model, one for each way to have a head and biases."""
    if not sizes.gated_mlp:
        return [lambda: Gpt2(sizes)]
    if sizes.shared_expert_width > 0 or 0 < sizes.layers_with_experts < sizes.layers:
        sys.exit("experts are known in every layer only, and no shared ones")
    return [functools.partial(Llama, sizes, sequence, tied, qkv_bias)
            for tied in (True, False) for qkv_bias in (False, True)]


def first_of_size(makers_of_models, sizes):
    """The first model with bench_step's number of parameters, but for the padded rows of its tables."""
    for make in makers_of_models:
        with torch.device("meta"):  # sizes without memory
            model = make()
        tables = 1 + any(name.endswith("head.weight") for name, _ in model.named_parameters())
        padded = tables * (sizes.vocab - sizes.model_vocab) * sizes.width
        if sum(p.numel() for p in model.parameters()) == sizes.parameters + padded:
            return make()
    sys.exit(f"no model here has bench_step's number of parameters, {sizes.parameters:,}")
