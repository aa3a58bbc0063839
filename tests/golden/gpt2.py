"""Writes tests/golden/gpt2/: four small GPT-2s and Transformers' results with them.

reference.py describes the files.

Usage: python tests/golden/gpt2.py        (README.md says what to install)
"""

import pathlib
from dataclasses import dataclass

from transformers import GPT2Config, GPT2LMHeadModel

from reference import Case, randomize, write_all

ROOT = pathlib.Path(__file__).parent / "gpt2"


@dataclass(frozen=True, kw_only=True)
class Gpt2Case(Case):
    layers: int
    width: int
    heads: int
    context: int
    activation: str = "gelu_new"


CASES = [
    Gpt2Case(name="plain", layers=2, width=32, heads=2, vocab_size=97, context=32, batch=2, sequence=16,
         prompt=5, generated=20, seed=32),
    # Nothing divides anything: head size 6, full context, ignored targets.
    Gpt2Case(name="odd", layers=3, width=30, heads=5, vocab_size=101, context=17, batch=3, sequence=17,
         ignored=7, seed=2),
    # One sequence just longer than a power of two, well within the context.
    Gpt2Case(name="one_layer", layers=1, width=48, heads=3, vocab_size=65, context=64, batch=1, sequence=33,
         seed=3),
    Gpt2Case(name="exact_gelu", layers=2, width=32, heads=4, vocab_size=97, context=32, batch=2, sequence=12,
         activation="gelu", seed=4),
]


def make_model(case):
    config = GPT2Config(
        vocab_size=case.vocab_size, n_positions=case.context, n_embd=case.width,
        n_layer=case.layers, n_head=case.heads, activation_function=case.activation, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=None, eos_token_id=None)
    return randomize(GPT2LMHeadModel(config), case.seed)


if __name__ == "__main__":
    write_all(ROOT, CASES, make_model, agreement=1e-12)
