"""Writes tests/golden/adapters/: adapters of PEFT on two of the small models, and the results of both.

Each folder holds adapter_config.json and adapter_model.safetensors as PEFT's save_pretrained writes them, with
random factors, and expected.safetensors: a batch, its logits and loss, and the gradients of the factors,
in float64 from the float32 weights. README.md lists the tensors.

Usage: python tests/golden/adapters.py                       (README.md says what to install)
       python tests/golden/adapters.py --check ADAPTER TOKENS SCORES [MERGED]

With --check it compares PEFT with Tessera: ADAPTER is a folder that Tessera has written, on a base in the folder that
its adapter_config.json names; TOKENS the file that was given to `tessera score --tokens`, SCORES its output, and MERGED
a folder of `tessera export --merge`. Log-probabilities must agree to 1e-5.
"""

import argparse
import json
import pathlib
from dataclasses import dataclass

import peft
import torch
import torch.nn.functional as F
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from reference import TOLERANCE, relative_error

ROOT = pathlib.Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class AdapterCase:
    name: str
    base: str  # a folder next to this file
    config: LoraConfig
    seed: int


CASES = [
    # Every linear layer; Conv1D keeps its weights as [in, out].
    AdapterCase(name="gpt2", base="gpt2/plain", seed=51, config=LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    # Two of three joined projections, and one end of the feed-forward layer, with alpha / sqrt(r).
    AdapterCase(name="llama", base="llama/llama3", seed=52, config=LoraConfig(
        task_type="CAUSAL_LM", r=3, lora_alpha=2, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"])),
]


def load_base(folder, dtype):
    # RoPE's frequencies stay in float32, as from_pretrained leaves them.
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model.eval()


def randomize_factors(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))


def results(model, ids, targets):
    model.zero_grad()
    logits = model(input_ids=ids, use_cache=False).logits
    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
    loss.backward()
    found = {"logits": logits.detach(), "loss": loss.detach().view(1)}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found["grad." + name.removeprefix("base_model.model.").replace(".default.", ".")] = parameter.grad.clone()
    return found


def write(case):
    base = ROOT / case.base
    model = get_peft_model(load_base(base, torch.float32), case.config)
    randomize_factors(model, case.seed)
    folder = ROOT / "adapters" / case.name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = f"tests/golden/{case.base}"
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    generator = torch.Generator().manual_seed(1000 + case.seed)
    ids, targets = torch.randint(model.config.vocab_size, (2, 2, 16), generator=generator)
    exact = results(PeftModel.from_pretrained(load_base(base, torch.float64), folder, is_trainable=True).double(),
                    ids, targets)
    single = results(model, ids, targets)
    plain = load_base(base, torch.float64)(input_ids=ids, use_cache=False).logits
    worst = max(relative_error(single[name], exact[name]) for name in exact)
    print(f"{case.name}: loss {exact['loss'].item():.6f}; PyTorch in float32: {worst:.1e}; the adapter changes the "
          f"logits by {relative_error(exact['logits'], plain):.2f}")
    assert worst < TOLERANCE / 4
    assert relative_error(exact["logits"], plain) > 0.05, "the adapter changes almost nothing"
    tensors = {name: t if name == "loss" else t.float() for name, t in exact.items()}
    tensors |= {"input_ids": ids.int(), "targets": targets.int()}
    made_by = f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "expected.safetensors",
              metadata={"made_by": made_by})


def log_probabilities(model, rows):
    with torch.no_grad():
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits.double()
    return F.log_softmax(logits, dim=-1).gather(2, rows[:, 1:, None]).squeeze(2)


def check(adapter, tokens, scores, merged):
    rows = torch.tensor(json.loads(pathlib.Path(tokens).read_text()))
    found = json.loads(pathlib.Path(scores).read_text())
    found = torch.tensor(found["log_probabilities"] if isinstance(found, dict) else found, dtype=torch.float64)
    base = json.loads((pathlib.Path(adapter) / "adapter_config.json").read_text())["base_model_name_or_path"]
    model = PeftModel.from_pretrained(load_base(base, torch.float64), adapter).double()
    without = log_probabilities(load_base(base, torch.float64), rows)
    expected = log_probabilities(model, rows)
    assert relative_error(expected, without) > 1e-3, "the adapter changes almost nothing"
    models = {"adapter": expected}
    if merged:
        models["merged"] = log_probabilities(load_base(merged, torch.float64), rows)
    for name, values in models.items():
        error = relative_error(found, values)
        print(f"{adapter}: {name}: {error:.1e}")
        assert error < TOLERANCE


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the order of sums, and so every bit, is then fixed
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", nargs="+", metavar="PATH", help="ADAPTER TOKENS SCORES [MERGED]")
    arguments = parser.parse_args()
    if arguments.check:
        check(*(arguments.check + [None])[:4])
    else:
        for case in CASES:
            write(case)
