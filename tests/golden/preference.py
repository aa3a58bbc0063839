"""Writes tests/golden/preference/: losses of TRL's trainers on pairs of answers, and their gradients.

The model is gpt2/plain, in float64 from its float32 weights. The reference is the same model with random noise on
its weights. The losses are those of TRL's own functions: DPOTrainer._compute_loss for dpo and ipo, and
CPOTrainer.cpo_loss for simpo and for label smoothing, which DPOTrainer no longer has. expected.safetensors has
the batch as TRL's collator lays it out, first the chosen and then the rejected answers; README.md lists the tensors.

Usage: python tests/golden/preference.py                       (README.md says what to install; also trl 1.16.0)
"""

import pathlib
from collections import defaultdict
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from trl import DPOTrainer
from trl.experimental.cpo import CPOTrainer

ROOT = pathlib.Path(__file__).parent
# (tokens, tokens of the prompt) of each pair's chosen and rejected text.
CHOSEN = [(13, 5), (15, 4), (9, 6)]
REJECTED = [(15, 5), (8, 4), (10, 6)]
WIDTH = 15
BETA, SMOOTHING, GAMMA = 0.3, 0.15, 0.4
GRADIENTS = ["transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"]


def load_model():
    model = AutoModelForCausalLM.from_pretrained(ROOT / "gpt2/plain", attn_implementation="eager")
    return model.to(torch.float64).eval()


def make_batch():
    generator = torch.Generator().manual_seed(61)
    rows = 2 * len(CHOSEN)
    ids = torch.zeros(rows, WIDTH, dtype=torch.int64)
    attention = torch.zeros_like(ids)
    completion = torch.zeros_like(ids)
    for row, (tokens, prompt) in enumerate(CHOSEN + REJECTED):
        ids[row, :tokens] = torch.randint(97, (tokens,), generator=generator)
        attention[row, :tokens] = 1
        completion[row, prompt:tokens] = 1
    return {"input_ids": ids, "attention_mask": attention, "completion_mask": completion}


def token_log_probabilities(model, batch):
    """[rows, WIDTH - 1], zero outside of completions."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    chosen = logits.log_softmax(-1).gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    return chosen * batch["completion_mask"][:, 1:]


def dpo_loss(kind, per_token, batch, reference):
    accelerator = SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)
    trainer = MagicMock(loss_types=[kind], loss_weights=[1.0], beta=BETA, ld_alpha=None, use_weighting=False,
                        f_divergence_type="reverse_kl", precompute_ref_logps=True, aux_loss_enabled=False,
                        accelerator=accelerator, _total_train_tokens=0, _tp_size=1,
                        _metrics=defaultdict(lambda: defaultdict(list)))
    half = len(CHOSEN)
    inputs = batch | {"ref_chosen_logps": reference[:half], "ref_rejected_logps": reference[half:]}

    def model(**_):
        metric = torch.zeros_like(per_token)
        return SimpleNamespace(log_probs=per_token, entropy=metric, mean_logits=metric, is_top1=metric.bool())

    return DPOTrainer._compute_loss(trainer, model, inputs, return_outputs=False)


def cpo_loss(kind, smoothing, chosen, rejected):
    trainer = SimpleNamespace(alpha=0.0, accelerator=SimpleNamespace(device="cpu"), loss_type=kind, beta=BETA,
                              label_smoothing=smoothing, simpo_gamma=GAMMA)
    return CPOTrainer.cpo_loss(trainer, chosen, rejected)[0].mean()


def main():
    batch = make_batch()
    model, reference = load_model(), load_model()
    generator = torch.Generator().manual_seed(62)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        of_reference = token_log_probabilities(reference, batch).sum(1)
    results = {name: tensor.to(torch.int32) for name, tensor in batch.items()}
    results["reference"] = of_reference
    half = len(CHOSEN)
    lengths = batch["completion_mask"].sum(1)

    def ratios(per_token):
        return (per_token.sum(1) - of_reference).split(half)

    def means(per_token):
        return (per_token.sum(1) / lengths).split(half)

    cases = {
        "dpo": lambda log_p: dpo_loss("sigmoid", log_p, batch, of_reference),
        "smoothed": lambda log_p: cpo_loss("sigmoid", SMOOTHING, *ratios(log_p)),
        "ipo": lambda log_p: dpo_loss("ipo", log_p, batch, of_reference),
        "simpo": lambda log_p: cpo_loss("simpo", 0.0, *means(log_p)),
        "simpo_smoothed": lambda log_p: cpo_loss("simpo", SMOOTHING, *means(log_p)),
    }
    for name, loss_of in cases.items():
        model.zero_grad()
        loss = loss_of(token_log_probabilities(model, batch))
        loss.backward()
        results[name + ".loss"] = loss.detach().reshape(1)
        for parameter in GRADIENTS:
            results[f"{name}.grad.{parameter}"] = model.get_parameter(parameter).grad.clone()
        print(name, loss.item())
    folder = ROOT / "preference"
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in results.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
