"""Writes tests/golden/llama4/: small Llama 4 text models and Transformers' results with them.

reference.py describes the files. Where documents are packed, expected.safetensors has `document_starts` too:
for each token the place in its row where its document starts.

Usage: python tests/golden/llama4.py       (README.md says what to install)
"""

import pathlib
from dataclasses import dataclass, field

import torch
from transformers import Llama4ForCausalLM, Llama4TextConfig

from reference import Case, randomize, write_all
from routing import check_routing, repel

ROOT = pathlib.Path(__file__).parent / "llama4"

# Norms, angles and softmax are in float32 even in a model of float64.
AGREEMENT = 4e-6


@dataclass(frozen=True, kw_only=True)
class Llama4Case(Case):
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    chunk: int
    experts: int
    experts_per_token: int
    expert_width: int
    mlp_width: int = 40
    tied: bool = False
    documents: tuple = ()  # lengths of the documents of every row; none: a row is one document
    idle: tuple = ()  # (layer, expert) that no token takes
    rope: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    options: dict = field(default_factory=dict)


CASES = [
    # As published: one expert of each token, experts in every second layer, the fourth layer without
    # RoPE. The sequence is three chunks and six steps of the temperature long.
    Llama4Case(name="typical", layers=4, width=32, heads=4, kv_heads=2, head_size=12, vocab_size=97,
               context=64, batch=2, sequence=24, chunk=8, experts=4, experts_per_token=1,
               expert_width=24, prompt=5, generated=20, seed=57,
               rope={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0,
                     "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 32},
               options={"interleave_moe_layer_step": 2, "floor_scale": 4}),
    # Nothing divides anything: a list of layers with experts, three experts of each token, biases, no
    # q/k norm, ignored targets. (Without RoPE the bias of k would have no gradient.)
    Llama4Case(name="odd", layers=3, width=30, heads=5, kv_heads=5, head_size=6, vocab_size=101,
               context=17, batch=3, sequence=17, chunk=5, ignored=7, experts=7,
               experts_per_token=3, expert_width=13, mlp_width=37, tied=True, seed=68,
               options={"no_rope_layers": [1, 1, 1], "moe_layers": [0, 2], "use_qk_norm": False,
                        "attention_bias": True}),
    # Documents in a row, shorter and longer than a chunk, experts without tokens, one head of keys
    # and values. Transformers' temperature counts from the row's start: here it is 1 everywhere.
    Llama4Case(name="packed", layers=2, width=32, heads=3, kv_heads=1, head_size=10, vocab_size=65,
               context=64, batch=2, sequence=33, chunk=4, experts=5, experts_per_token=1,
               expert_width=16, seed=167, documents=(13, 1, 3, 16),
               idle=((0, 2), (1, 4)), options={"no_rope_layers": [1, 0], "floor_scale": 8192}),
    # Every token takes all experts; chunks of two tokens.
    Llama4Case(name="all_experts", layers=2, width=24, heads=2, kv_heads=2, head_size=8,
               vocab_size=65, context=32, batch=1, sequence=21, chunk=2, experts=4,
               experts_per_token=4, expert_width=10, seed=54,
               options={"no_rope_layers": [0, 1], "moe_layers": [1], "floor_scale": 2,
                        "attn_scale": 0.3, "pad_token_id": 49}),
]


def make_model(case):
    config = Llama4TextConfig(
        vocab_size=case.vocab_size, max_position_embeddings=case.context, hidden_size=case.width,
        intermediate_size=case.expert_width, intermediate_size_mlp=case.mlp_width,
        num_hidden_layers=case.layers, num_attention_heads=case.heads,
        num_key_value_heads=case.kv_heads, head_dim=case.head_size, rms_norm_eps=1e-5,
        num_local_experts=case.experts, num_experts_per_tok=case.experts_per_token,
        attention_chunk_size=case.chunk, rope_parameters=case.rope,
        tie_word_embeddings=case.tied, bos_token_id=None, eos_token_id=None,
        attn_implementation="eager", **case.options)
    model = randomize(Llama4ForCausalLM(config), case.seed)
    if case.documents:
        model.register_forward_pre_hook(Packing(case), with_kwargs=True)
    repel(routers_of(model), model, case)
    check_routing(routers_of, model, case)
    return model


def routers_of(model):
    layers = enumerate(model.model.layers)
    return {i: layer.feed_forward.router for i, layer in layers if layer.is_moe_layer}


class Packing:
    """Gives the model positions that begin again with every document: Transformers' sign of one."""

    def __init__(self, case):
        assert sum(case.documents) == case.sequence
        positions = torch.cat([torch.arange(length) for length in case.documents])
        self.position_ids = positions.expand(case.batch, -1)

    def __call__(self, module, arguments, keywords):
        return arguments, keywords | {"position_ids": self.position_ids}


def document_starts(case, model):
    if not case.documents:
        return {}
    starts = torch.arange(case.sequence).expand(case.batch, -1) - Packing(case).position_ids
    return {"document_starts": starts.int()}


if __name__ == "__main__":
    write_all(ROOT, CASES, make_model, AGREEMENT, extra=document_starts)
