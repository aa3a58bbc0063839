"""Writes tests/golden/gemma3/: small Gemma 3s and Transformers' results with them.

reference.py describes the files.

Usage: python tests/golden/gemma3.py      (README.md says what to install)
"""

import pathlib
from dataclasses import dataclass, field

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from reference import Case, randomize, write_all

ROOT = pathlib.Path(__file__).parent / "gemma3"

# Norms, angles and softmax are in float32 even in a model of float64.
AGREEMENT = 2e-6


@dataclass(frozen=True, kw_only=True)
class Gemma3Case(Case):
    layers: int
    width: int
    mlp_width: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    window: int
    query_scalar: int
    options: dict = field(default_factory=dict)


CASES = [
    # Layer 2 is global, with slowed waves. Heads of 12, where the width has 8 channels for each, and scores
    # scaled by neither.
    Gemma3Case(name="typical", layers=4, width=32, mlp_width=48, heads=4, kv_heads=2, head_size=12,
               vocab_size=97, context=64, window=5, query_scalar=9, batch=2, sequence=21, prompt=7,
               generated=16, seed=65,
               options={"layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                                        "sliding_attention"],
                        "rope_parameters": {
                            "full_attention": {"rope_type": "linear", "rope_theta": 500.0,
                                               "factor": 3.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}),
    # Nothing divides anything: one head of keys and values, biases, the whole context, ignored targets,
    # the usual pattern of layers, a head that is not tied.
    Gemma3Case(name="odd", layers=3, width=30, mlp_width=37, heads=5, kv_heads=1, head_size=6,
               vocab_size=101, context=17, window=4, query_scalar=6, batch=3, sequence=17, ignored=7,
               seed=45, options={"attention_bias": True, "tie_word_embeddings": False,
                                 "pad_token_id": 61}),
]


def make_model(case):
    config = Gemma3TextConfig(**{
        "vocab_size": case.vocab_size, "max_position_embeddings": case.context,
        "hidden_size": case.width, "intermediate_size": case.mlp_width,
        "num_hidden_layers": case.layers, "num_attention_heads": case.heads,
        "num_key_value_heads": case.kv_heads, "head_dim": case.head_size,
        "sliding_window": case.window, "query_pre_attn_scalar": case.query_scalar,
        "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
        "attn_implementation": "eager", **case.options})
    model = randomize(Gemma3ForCausalLM(config), case.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.sub_(1.0)  # norms multiply by 1 + weight
    return model


if __name__ == "__main__":
    write_all(ROOT, CASES, make_model, AGREEMENT)
