"""Shared by the scripts of models with experts: choices of experts that rounding cannot flip.

A model's routers are a dictionary: the number of a layer to its router, a module with a weight [E, C] whose
first argument is the layer's input.
"""

import torch
import torch.nn.functional as F

from reference import make_batch, reference_model

# The chosen and the other experts' logits, for every token: far above float32's rounding, so that an
# implementation in float32 chooses the same experts.
MIN_ROUTER_MARGIN = 1e-5
# The same for a model that is computed in bfloat16 too.
MIN_ROUTER_MARGIN_BF16 = 0.02


def router_logits(routers, model, ids):
    """Each layer's logits [tokens, experts], by hooks: versions return different things."""
    logits, hooks = [], []
    for router in routers.values():
        hooks.append(router.register_forward_pre_hook(
            lambda module, inputs: logits.append(F.linear(
                inputs[0].reshape(-1, inputs[0].shape[-1]), module.weight))))
    model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return logits


def repel(routers, model, case):
    """Moves the router's row of an idle expert, so that its logit is below all others."""
    ids, _ = make_batch(case)
    for layer, expert in case.idle:
        router, inputs = routers[layer], []
        hook = router.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach()))
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
            hook.remove()
            rows = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
            # The least-squares row that gives every token the logit -6.
            target = torch.full((rows.shape[0], 1), -6.0, dtype=torch.float64)
            router.weight[expert] = torch.linalg.lstsq(rows, target).solution[:, 0].float()


def check_routing(routers_of, model, case):
    """Refuses a model if rounding could flip its choice of experts. routers_of(model) is its routers."""
    counts = count_tokens(routers_of, reference_model(model), case, MIN_ROUTER_MARGIN)
    print(f"{case.name}: tokens of the experts of each layer {counts}")
    layers = list(routers_of(model))
    for layer, expert in case.idle:
        assert counts[layers.index(layer)][expert] == 0, "an expert that should be idle has tokens"
    if case.bf16:
        rounded = reference_model(reference_model(model, torch.bfloat16))
        count_tokens(routers_of, rounded, case, MIN_ROUTER_MARGIN_BF16)


def count_tokens(routers_of, exact, case, least_margin):
    """The tokens of every layer's experts. Refuses two experts on the edge that are too close."""
    ids, _ = make_batch(case)
    chosen = []
    with torch.no_grad():
        for logits in router_logits(routers_of(exact), exact, ids):
            ordered = logits.sort(dim=-1, descending=True).values
            if case.experts_per_token < case.experts:
                k = case.experts_per_token
                margin = (ordered[:, k - 1] - ordered[:, k]).min().item()
                assert margin > least_margin, f"experts only {margin:.1e} apart: another seed"
            top = logits.topk(case.experts_per_token, dim=-1).indices
            chosen.append(top.flatten().bincount(minlength=case.experts).tolist())
    return chosen
