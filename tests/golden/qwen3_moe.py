"""Writes tests/golden/qwen3_moe/: small Qwen3-MoEs and Transformers' results with them.

reference.py describes the files. expected.safetensors has `balance_loss` and `balanced.grad.*` too: the
auxiliary loss that Transformers adds with output_router_logits, and the gradients with it.

Usage: python tests/golden/qwen3_moe.py       (README.md says what to install)
"""

import pathlib
from dataclasses import dataclass, field

import torch.nn.functional as F
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from reference import (IGNORE_INDEX, Case, make_batch, randomize, reference_model, relative_error,
                       write_all)
from routing import check_routing, repel, router_logits

ROOT = pathlib.Path(__file__).parent / "qwen3_moe"

# Norms, angles and softmax are in float32 even in a model of float64.
AGREEMENT = 2e-6
BALANCE_COEFFICIENT = 0.02


@dataclass(frozen=True, kw_only=True)
class MoeCase(Case):
    layers: int
    width: int
    heads: int
    kv_heads: int
    context: int
    experts: int
    experts_per_token: int
    expert_width: int
    mlp_width: int = 40
    tied: bool = False
    idle: tuple = ()  # (layer, expert) that no token takes
    options: dict = field(default_factory=dict)


CASES = [
    # As published: normalized weights, and heads of 12 where the width has 8 channels for each.
    MoeCase(name="typical", layers=2, width=32, heads=4, kv_heads=2, vocab_size=97, context=32,
            batch=2, sequence=16, experts=8, experts_per_token=2, expert_width=24, prompt=5,
            generated=20, seed=43, options={"head_dim": 12, "norm_topk_prob": True}),
    # Nothing divides anything; weights not normalized; layers 0 and 2 without experts; biases.
    MoeCase(name="odd", layers=4, width=30, heads=5, kv_heads=5, vocab_size=101, context=17, batch=3,
            sequence=17, ignored=7, experts=7, experts_per_token=3, expert_width=13, mlp_width=37,
            tied=True, seed=307,
            options={"decoder_sparse_step": 2, "attention_bias": True}),
    # Every token takes all experts of a layer, one head of keys and values.
    MoeCase(name="all_experts", layers=2, width=24, heads=3, kv_heads=1, vocab_size=65, context=32,
            batch=1, sequence=21, experts=4, experts_per_token=4, expert_width=10,
            seed=33,
            options={"norm_topk_prob": True, "mlp_only_layers": [1]}),
    # Two experts that no token takes, one expert for each token.
    MoeCase(name="idle_expert", layers=2, width=32, heads=2, kv_heads=1, vocab_size=65, context=32,
            batch=2, sequence=11, experts=5, experts_per_token=1, expert_width=16,
            seed=36, idle=((0, 2), (1, 4)), options={"head_dim": 16, "pad_token_id": 5}),
]


def make_model(case):
    config = Qwen3MoeConfig(
        vocab_size=case.vocab_size, max_position_embeddings=case.context, hidden_size=case.width,
        intermediate_size=case.mlp_width, num_hidden_layers=case.layers,
        num_attention_heads=case.heads, num_key_value_heads=case.kv_heads, rms_norm_eps=1e-5,
        moe_intermediate_size=case.expert_width, num_experts=case.experts,
        num_experts_per_tok=case.experts_per_token, tie_word_embeddings=case.tied,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        router_aux_loss_coef=BALANCE_COEFFICIENT, attn_implementation="eager",
        experts_implementation="eager", **case.options)
    model = randomize(Qwen3MoeForCausalLM(config), case.seed)
    repel(routers_of(model), model, case)
    check_routing(routers_of, model, case)
    return model


def routers_of(model):
    layers = enumerate(model.model.layers)
    return {i: layer.mlp.gate for i, layer in layers if hasattr(layer.mlp, "gate")}


def balanced(case, model):
    """The auxiliary loss, and the gradients of the cross-entropy and it together."""
    ids, targets = make_batch(case)
    exact = reference_model(model)
    exact.zero_grad()
    output = exact(input_ids=ids, use_cache=False, output_router_logits=True)
    balance = BALANCE_COEFFICIENT * output.aux_loss
    by_hand = load_balancing_loss_func(tuple(router_logits(routers_of(exact), exact, ids)), case.experts,
                                       case.experts_per_token)
    assert relative_error(by_hand, output.aux_loss) < 1e-6, "the router's logits are other numbers"
    logits = output.logits
    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1),
                           ignore_index=IGNORE_INDEX)
    (loss + balance).backward()
    result = {"balance_loss": balance.detach().double().view(1)}
    for name, parameter in exact.named_parameters():
        result["balanced.grad." + name] = parameter.grad.float()
    print(f"  balance loss {balance.item():.6f}")
    return result


if __name__ == "__main__":
    write_all(ROOT, CASES, make_model, AGREEMENT, extra=balanced)
