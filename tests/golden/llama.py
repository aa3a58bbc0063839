"""Writes tests/golden/llama/: small Llamas, Mistrals, Qwens and OLMos and Transformers' results with them.

reference.py describes the files.

Usage: python tests/golden/llama.py       (README.md says what to install)
"""

import pathlib
from dataclasses import dataclass, field

from transformers import (AutoModelForCausalLM, LlamaConfig, MistralConfig, Olmo2Config, Qwen2Config,
                          Qwen3Config)

from reference import Case, randomize, write_all

ROOT = pathlib.Path(__file__).parent / "llama"

# Norms, angles and softmax are in float32 even in a model of float64.
AGREEMENT = 2e-6


@dataclass(frozen=True, kw_only=True)
class LlamaCase(Case):
    config: type = LlamaConfig
    layers: int
    width: int
    mlp_width: int
    heads: int
    kv_heads: int
    context: int
    tied: bool = False
    rope: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    options: dict = field(default_factory=dict)


CASES = [
    # Grouped queries, and waves of all three kinds: kept, blended and slowed.
    LlamaCase(name="llama3", layers=2, width=32, mlp_width=56, heads=4, kv_heads=2, vocab_size=97,
              context=64, batch=2, sequence=24, prompt=5, generated=20, seed=11,
              rope={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0,
                    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32}),
    # Nothing divides anything: head size 6, full context, ignored targets, every bias.
    LlamaCase(name="odd", layers=3, width=30, mlp_width=37, heads=5, kv_heads=5, vocab_size=101,
              context=17, batch=3, sequence=17, ignored=7, tied=True, seed=12,
              rope={"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
              options={"attention_bias": True, "mlp_bias": True}),
    # One head of keys and values, and a sequence beyond the original context.
    LlamaCase(name="one_kv_head", layers=1, width=48, mlp_width=64, heads=3, kv_heads=1,
              vocab_size=65, context=64, batch=1, sequence=33, seed=13,
              rope={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                    "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0},
              options={"pad_token_id": 61}),
    LlamaCase(name="qwen2", config=Qwen2Config, layers=2, width=56, mlp_width=40, heads=7,
              kv_heads=1, vocab_size=89, context=32, batch=2, sequence=16, tied=True,
              prompt=4, generated=16, seed=23),
    # Heads of 12, where the width has 8 channels for each.
    LlamaCase(name="qwen3", config=Qwen3Config, layers=2, width=32, mlp_width=48, heads=4,
              kv_heads=2, vocab_size=97, context=32, batch=2, sequence=16, prompt=5,
              generated=20, seed=20, options={"head_dim": 12}),
    LlamaCase(name="qwen3_tied", config=Qwen3Config, layers=1, width=36, mlp_width=48, heads=6,
              kv_heads=3, vocab_size=65, context=32, batch=2, sequence=9, tied=True, seed=20,
              options={"head_dim": 10, "attention_bias": True, "pad_token_id": 29}),
    # The row is four windows long. In generation the prompt is longer than a window.
    LlamaCase(name="mistral", config=MistralConfig, layers=2, width=32, mlp_width=48, heads=4,
              kv_heads=2, vocab_size=97, context=64, batch=2, sequence=21, prompt=7, generated=16,
              seed=30, options={"sliding_window": 5}),
    # Layers from the second on have windows, or those that layer_types names.
    LlamaCase(name="qwen2_window", config=Qwen2Config, layers=3, width=32, mlp_width=40, heads=4,
              kv_heads=2, vocab_size=89, context=32, batch=2, sequence=17, seed=31,
              options={"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    LlamaCase(name="qwen3_window", config=Qwen3Config, layers=3, width=32, mlp_width=40, heads=4,
              kv_heads=2, vocab_size=89, context=32, batch=2, sequence=17, prompt=6, generated=16,
              seed=32, options={"head_dim": 8, "use_sliding_window": True, "sliding_window": 4,
                                "layer_types": ["sliding_attention", "full_attention",
                                                "sliding_attention"]}),
    # Norms behind the layers, and of all heads together.
    LlamaCase(name="olmo2", config=Olmo2Config, layers=2, width=32, mlp_width=48, heads=4,
              kv_heads=2, vocab_size=97, context=32, batch=2, sequence=16, prompt=5, generated=20,
              seed=37, options={"pad_token_id": None}),
    LlamaCase(name="olmo2_odd", config=Olmo2Config, layers=3, width=30, mlp_width=37, heads=5,
              kv_heads=1, vocab_size=101, context=17, batch=3, sequence=17, ignored=7, tied=True,
              seed=36, options={"attention_bias": True, "pad_token_id": 61}),
    # A sequence beyond the original context. There Transformers has no greedy continuation to compare
    # with: its cache keeps keys rotated by the frequencies of shorter sequences.
    LlamaCase(name="dynamic", layers=2, width=32, mlp_width=48, heads=4, kv_heads=2, vocab_size=97,
              context=16, batch=2, sequence=29, seed=33,
              rope={"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}),
    # One model, with a sequence of the original context, and with a longer one.
    *(LlamaCase(name=name, layers=2, width=32, mlp_width=48, heads=4, kv_heads=2, vocab_size=97,
                context=64, batch=2, sequence=sequence, seed=34,
                rope={"rope_type": "longrope", "rope_theta": 100.0,
                      "original_max_position_embeddings": 16,
                      "short_factor": [1.0, 1.1, 1.3, 1.7], "long_factor": [1.0, 2.1, 3.5, 6.0]})
      for name, sequence in (("longrope_short", 16), ("longrope_long", 31))),
]


def make_model(case):
    config = case.config(
        vocab_size=case.vocab_size, max_position_embeddings=case.context, hidden_size=case.width,
        intermediate_size=case.mlp_width, num_hidden_layers=case.layers,
        num_attention_heads=case.heads, num_key_value_heads=case.kv_heads, rms_norm_eps=1e-5,
        rope_parameters=case.rope, tie_word_embeddings=case.tied, bos_token_id=None,
        eos_token_id=None, attn_implementation="eager", **case.options)
    return randomize(AutoModelForCausalLM.from_config(config), case.seed)


if __name__ == "__main__":
    write_all(ROOT, CASES, make_model, AGREEMENT)
