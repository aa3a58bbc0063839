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
# The same from weights rounded to bfloat16, which are computed in bfloat16.
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
    ids, _ = make_batch(case)
    chosen = choose(routers_of, reference_model(model), ids, case, MIN_ROUTER_MARGIN)
    counts = [layer.flatten().bincount(minlength=case.experts).tolist() for layer in chosen]
    print(f"{case.name}: tokens of the experts of each layer {counts}")
    layers = list(routers_of(model))
    for layer, expert in case.idle:
        assert counts[layers.index(layer)][expert] == 0, "an expert that should be idle has tokens"
    low = reference_model(model, torch.bfloat16, attention="sdpa")
    exact = choose(routers_of, reference_model(low), ids, case, MIN_ROUTER_MARGIN_BF16)
    flipped = sum((a != b).sum().item() for a, b in zip(choose(routers_of, low, ids, case), exact))
    assert flipped == 0, f"PyTorch in bfloat16 chooses {flipped} other experts: another seed"


def choose(routers_of, model, ids, case, least_margin=0.0):
    """Every layer's chosen experts, in the order of their numbers. Refuses two experts on the edge
    whose logits are not further apart than the margin."""
    k = case.experts_per_token
    chosen = []
    with torch.no_grad():
        for logits in router_logits(routers_of(model), model, ids):
            ordered = logits.sort(dim=-1, descending=True).values
            if least_margin and k < case.experts:
                margin = (ordered[:, k - 1] - ordered[:, k]).min().item()
                assert margin > least_margin, f"experts only {margin:.1e} apart: another seed"
            chosen.append(logits.topk(k, dim=-1).indices.sort(dim=-1).values)
    return chosen
