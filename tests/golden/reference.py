"""Shared by the scripts of all model families: how a model becomes a folder of golden files.

Each configuration becomes a folder:

  config.json, model.safetensors   the float32 model, as save_pretrained writes it
  expected.safetensors             a batch and the reference results (README.md lists the tensors)
  bf16.safetensors                 the errors of PyTorch in bfloat16, from weights rounded to bfloat16

The reference runs in float64 from the float32 weights, so its own rounding is far below the
tolerance of the tests (1e-5). Every reference is guarded here: two implementations of attention must
agree, and PyTorch itself, run in float32, must stay within a quarter of that tolerance.
"""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

IGNORE_INDEX = -100
ADAMW_STEPS = 10
BF16_DRAWS = 8
TOLERANCE = 1e-5  # of the tests that read these files
MIN_MARGIN = 1e-3  # between the two largest logits, wherever a greedy choice is made


@dataclass(frozen=True, kw_only=True)
class Case:
    """A batch and what is computed from it. A family's script adds the sizes of its models."""
    name: str
    vocab_size: int
    batch: int
    sequence: int
    ignored: int = 0  # targets that do not count
    prompt: int = 0  # tokens to continue greedily; 0: no generation
    generated: int = 0
    seed: int = 0


def randomize(model, seed):
    """Makes every parameter random: a bias or norm left at 0 or 1 would hide mistakes.

    The scale 0.2 gives activations, attention scores and logits of order one at these widths.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(center + 0.2 * noise)
    return model.eval()


def make_batch(case):
    generator = torch.Generator().manual_seed(1000 + case.seed)
    shape = (case.batch, case.sequence)
    ids = torch.randint(case.vocab_size, shape, generator=generator)
    targets = torch.randint(case.vocab_size, shape, generator=generator)
    places = torch.randperm(ids.numel(), generator=generator)[:case.ignored]
    targets.view(-1)[places] = IGNORE_INDEX
    return ids, targets


def reference_model(model, dtype=torch.float64, attention="eager"):
    """A copy whose parameters have this dtype. Its buffers stay in float32, as from_pretrained leaves
    them: RoPE's frequencies rounded to bfloat16 would be another model."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    model.set_attn_implementation(attention)
    return model


def loss_of(model, ids, targets):
    """Logits, and the mean over valid targets; targets are already shifted by the caller."""
    logits = model(input_ids=ids, use_cache=False).logits
    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1),
                           ignore_index=IGNORE_INDEX)
    return logits, loss


def logits_loss_gradients(model, ids, targets):
    """named_parameters() yields the tied embedding once, with the sum of its two gradients."""
    model.zero_grad()
    logits, loss = loss_of(model, ids, targets)
    loss.backward()
    result = {"logits": logits.detach(), "loss": loss.detach().view(1)}
    for name, parameter in model.named_parameters():
        result["grad." + name] = parameter.grad.clone()
    return result


def adamw_losses(model, ids, targets):
    """The loss before each step on the one batch, and after the last: ADAMW_STEPS + 1 values."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(ADAMW_STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, ids, targets)[1]
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    losses.append(loss_of(model, ids, targets)[1].detach())
    return torch.stack(losses)


def greedy_tokens(model, case):
    """Prompt and continuation. Refuses a choice that float32 rounding could flip."""
    generator = torch.Generator().manual_seed(2000 + case.seed)
    prompt = torch.randint(case.vocab_size, (1, case.prompt), generator=generator)
    tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                            max_new_tokens=case.generated, pad_token_id=0)
    assert tokens.shape == (1, case.prompt + case.generated)
    with torch.no_grad():
        top = model(tokens[:, :-1]).logits[0, case.prompt - 1:].topk(2)
    assert torch.equal(top.indices[:, 0], tokens[0, case.prompt:]), "generate() was not greedy"
    margin = (top.values[:, 0] - top.values[:, 1]).min().item()
    assert margin > MIN_MARGIN, f"two logits only {margin:.1e} apart: choose another seed"
    assert len(set(tokens[0].tolist())) > 10, "the continuation repeats itself: choose another seed"
    print(f"  greedy: {tokens[0].tolist()}, smallest margin {margin:.3f}")
    return prompt[0], tokens[0, case.prompt:]


def relative_error(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def guard(case, model, ids, targets, expected, losses, agreement):
    """Raises unless a correct float32 implementation stays well within the tests' tolerance."""
    exact = logits_loss_gradients(reference_model(model, attention="sdpa"), ids, targets)
    single = logits_loss_gradients(reference_model(model, torch.float32), ids, targets)
    between = max(relative_error(exact[name], expected[name]) for name in expected)
    worst = max(expected, key=lambda name: relative_error(single[name], expected[name]))
    rounding = relative_error(single[worst], expected[worst])
    drift = (adamw_losses(reference_model(model, torch.float32), ids, targets) / losses - 1).abs()
    print(f"  eager against sdpa in float64: {between:.1e}; PyTorch in float32: {rounding:.1e} "
          f"({worst}), losses of AdamW {drift.max():.1e}")
    assert between < agreement
    assert rounding < TOLERANCE / 4 and drift.max() < TOLERANCE / 4
    assert (targets == IGNORE_INDEX).sum() == case.ignored
    padding = getattr(model.config, "pad_token_id", None)
    assert padding is None or (ids == padding).any(), "the batch has no padding"


def draw_targets(case):
    """Targets of several draws for the one batch of ids, [BF16_DRAWS, B, T]. The first are the batch's."""
    targets = make_batch(case)[1]
    generator = torch.Generator().manual_seed(3000 + case.seed)
    draws = torch.randint(case.vocab_size, (BF16_DRAWS, *targets.shape), generator=generator)
    draws[0] = targets
    return draws.masked_fill(targets == IGNORE_INDEX, IGNORE_INDEX)


def bf16_errors(model, case):
    """How far PyTorch in bfloat16 is from the exact results of the same rounded weights.

    One draw of a loss, or of a gradient of six numbers, can be near the exact value by luck. So every
    error is the root mean square over several draws of the targets. The ids stay: a model with experts
    chooses the same experts in every draw.
    """
    ids, draws = make_batch(case)[0], draw_targets(case)
    rounded = reference_model(model, torch.bfloat16, attention="sdpa")
    exact_model = reference_model(rounded)
    losses, squares = [], {}
    for targets in draws:
        exact = logits_loss_gradients(exact_model, ids, targets)
        low = logits_loss_gradients(rounded, ids, targets)
        losses.append(exact["loss"])
        for name in exact:
            squares[name] = squares.get(name, 0.0) + relative_error(low[name], exact[name]) ** 2
    errors = {name: (square / BF16_DRAWS) ** 0.5 for name, square in squares.items()}
    worst = max(errors, key=errors.get)
    print(f"  PyTorch in bfloat16: logits {errors['logits']:.1e}, loss {errors['loss']:.1e}, "
          f"gradients up to {errors[worst]:.1e} ({worst})")
    expected = {"error." + name: torch.tensor([error], dtype=torch.float64)
                for name, error in errors.items()}
    return expected | {"targets": draws.int(), "losses": torch.cat(losses)}


def save_results(tensors, path):
    # One entry, because the order of several is not fixed and the file should be.
    made_by = f"torch {torch.__version__}, transformers {transformers.__version__}"
    save_file({name: t.contiguous() for name, t in tensors.items()}, path,
              metadata={"made_by": made_by})


def write(root, case, model, agreement, extra):
    """Writes root/case.name. `agreement`: the most that two implementations of attention may differ
    in "float64" (Transformers computes some parts of some models in float32 whatever the dtype).
    extra(case, model) returns further tensors of expected.safetensors."""
    print(case.name)
    ids, targets = make_batch(case)
    reference = logits_loss_gradients(reference_model(model), ids, targets)
    losses = adamw_losses(reference_model(model), ids, targets)
    guard(case, model, ids, targets, reference, losses, agreement)
    print(f"  losses: {losses[0]:.6f} .. {losses[-1]:.6f}")

    expected = {name: t if name == "loss" else t.float() for name, t in reference.items()}
    expected |= {"input_ids": ids.int(), "targets": targets.int(), "adamw_losses": losses}
    if case.prompt:
        prompt, continuation = greedy_tokens(reference_model(model), case)
        expected |= {"prompt": prompt.int(), "continuation": continuation.int()}

    expected |= extra(case, model)
    folder = root / case.name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_results(expected, folder / "expected.safetensors")
    save_results(bf16_errors(model, case), folder / "bf16.safetensors")


def write_all(root, cases, make_model, agreement, extra=lambda case, model: {}):
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the order of sums, and so every bit, is then fixed
    for case in cases:
        write(root, case, make_model(case), agreement, extra)
