"""Writes tests/golden/qwen3_moe/: small Qwen3-MoEs and Transformers' results with them.

reference.py describes the files. expected.safetensors has `balance_loss` and `balanced.grad.*` too: the
auxiliary loss that Transformers adds with output_router_logits, and the gradients with it.

Usage: python tests/golden/qwen3_moe.py       (README.md says what to install)
"""

import pathlib
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from reference import (IGNORE_INDEX, Case, make_batch, randomize, reference_model, relative_error,
                       write_all)

ROOT = pathlib.Path(__file__).parent / "qwen3_moe"

# Norms, angles and softmax are in float32 even in a model of float64.
AGREEMENT = 2e-6
# The chosen and the other experts' logits, for every token: far above float32's rounding, so that an
# implementation in float32 chooses the same experts.
MIN_ROUTER_MARGIN = 1e-5
# The same for a model that is computed in bfloat16 too.
MIN_ROUTER_MARGIN_BF16 = 0.02
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
            batch=2, sequence=16, experts=8, experts_per_token=2, expert_width=24, bf16=True, prompt=5,
            generated=20, seed=43, options={"head_dim": 12, "norm_topk_prob": True}),
    # Nothing divides anything; weights not normalized; layers 0 and 2 without experts; biases.
    MoeCase(name="odd", layers=4, width=30, heads=5, kv_heads=5, vocab_size=101, context=17, batch=3,
            sequence=17, ignored=7, experts=7, experts_per_token=3, expert_width=13, mlp_width=37,
            tied=True, seed=32,
            options={"decoder_sparse_step": 2, "attention_bias": True}),
    # Every token takes all experts of a layer, one head of keys and values.
    MoeCase(name="all_experts", layers=2, width=24, heads=3, kv_heads=1, vocab_size=65, context=32,
            batch=1, sequence=21, experts=4, experts_per_token=4, expert_width=10, bf16=True,
            seed=33,
            options={"norm_topk_prob": True, "mlp_only_layers": [1]}),
    # Two experts that no token takes, one expert for each token.
    MoeCase(name="idle_expert", layers=2, width=32, heads=2, kv_heads=1, vocab_size=65, context=32,
            batch=2, sequence=11, experts=5, experts_per_token=1, expert_width=16,
            seed=34, idle=((0, 2), (1, 4)), options={"head_dim": 16}),
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
    repel(model, case)
    check_routing(model, case)
    return model


def router_logits(model, ids):
    """Each layer's logits [tokens, experts], by hooks: versions differ in what they return."""
    logits, hooks = [], []
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            hooks.append(layer.mlp.gate.register_forward_pre_hook(
                lambda gate, inputs: logits.append(F.linear(
                    inputs[0].reshape(-1, inputs[0].shape[-1]), gate.weight))))
    model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return logits


def repel(model, case):
    """Moves the router's row of an idle expert, so that its logit is below all others."""
    ids, _ = make_batch(case)
    for layer, expert in case.idle:
        gate = model.model.layers[layer].mlp.gate
        inputs = []
        hook = gate.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach()))
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
            hook.remove()
            rows = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
            # The least-squares row that gives every token the logit -6.
            target = torch.full((rows.shape[0], 1), -6.0, dtype=torch.float64)
            gate.weight[expert] = torch.linalg.lstsq(rows, target).solution[:, 0].float()


def check_routing(model, case):
    """Refuses a model whose choice of experts rounding could flip."""
    counts = count_tokens(reference_model(model), case, MIN_ROUTER_MARGIN)
    print(f"{case.name}: tokens of the experts of each layer {counts}")
    for layer, expert in case.idle:
        assert counts[layer][expert] == 0, "an expert that should be idle has tokens"
    if case.bf16:
        rounded = reference_model(reference_model(model, torch.bfloat16))
        count_tokens(rounded, case, MIN_ROUTER_MARGIN_BF16)


def count_tokens(exact, case, least_margin):
    """The tokens of every layer's experts. Refuses two experts on the edge that are too close."""
    ids, _ = make_batch(case)
    chosen = []
    with torch.no_grad():
        for logits in router_logits(exact, ids):
            ordered = logits.sort(dim=-1, descending=True).values
            if case.experts_per_token < case.experts:
                k = case.experts_per_token
                margin = (ordered[:, k - 1] - ordered[:, k]).min().item()
                assert margin > least_margin, f"experts only {margin:.1e} apart: another seed"
            top = logits.topk(case.experts_per_token, dim=-1).indices
            chosen.append(top.flatten().bincount(minlength=case.experts).tolist())
    return chosen


def balanced(case, model):
    """The auxiliary loss, and the gradients of the cross-entropy and it together."""
    ids, targets = make_batch(case)
    exact = reference_model(model)
    exact.zero_grad()
    output = exact(input_ids=ids, use_cache=False, output_router_logits=True)
    balance = BALANCE_COEFFICIENT * output.aux_loss
    by_hand = load_balancing_loss_func(tuple(router_logits(exact, ids)), case.experts,
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
