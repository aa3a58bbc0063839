"""Writes muon/muon.safetensors: ten steps of torch.optim.Muon (pip install torch safetensors numpy).

torch.optim.Muon orthogonalizes in bfloat16. For the exact reference this script replaces that dtype by
float64 in its function, and keeps parameters and gradients in float64. The same steps as PyTorch makes
them, with float32 parameters, give the errors of its bfloat16 against the reference.

  p.<name>                  f32, the parameters before the first step
  gradients.<name>          f32 [10, ...], a gradient for each step
  <case>.p.<name>           f64, the parameters after the last step
  <case>.update.<name>      f64 [1], |difference of the two|
  <case>.bf16_error.<name>  f64 [1], |PyTorch's parameters - the reference| / |update|

A name's parameter has the layout [outputs, inputs]; `stack` is three matrices, each with its own optimizer.
"""

import inspect
import pathlib

import torch
from safetensors.torch import save_file
from torch.optim import _muon

STEPS = 10
SHAPES = {"wide": (6, 10), "tall": (10, 6), "square": (8, 8), "stack": (3, 4, 6)}
CASES = {
    "original": dict(lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn="original"),
    "match_rms": dict(lr=0.05, weight_decay=0.3, momentum=0.8, nesterov=False,
                      adjust_lr_fn="match_rms_adamw"),
}

in_bf16 = _muon._zeropower_via_newtonschulz
source = inspect.getsource(in_bf16)
assert source.count("dtype=torch.bfloat16") == 1
exec(source.replace("dtype=torch.bfloat16", "dtype=torch.float64"), _muon.__dict__)
in_f64 = _muon._zeropower_via_newtonschulz


def steps(parameter, gradients, options, dtype, orthogonalize):
    """The matrix after ten steps."""
    _muon._zeropower_via_newtonschulz = orthogonalize
    p = torch.nn.Parameter(parameter.to(dtype, copy=True))
    optimizer = torch.optim.Muon([p], **options)
    for gradient in gradients:
        p.grad = gradient.to(dtype)
        optimizer.step()
    return p.detach().double()


def after(parameter, gradients, *how):
    if parameter.dim() == 2:
        return steps(parameter, gradients, *how)
    return torch.stack([steps(p, gradients[:, i], *how) for i, p in enumerate(parameter)])


generator = torch.Generator().manual_seed(1)
tensors = {}
for name, shape in SHAPES.items():
    p = torch.randn(shape, generator=generator)
    gradients = torch.randn((STEPS, *shape), generator=generator)
    tensors[f"p.{name}"] = p
    tensors[f"gradients.{name}"] = gradients
    for case, options in CASES.items():
        exact = after(p, gradients, options, torch.float64, in_f64)
        low = after(p, gradients, options, torch.float32, in_bf16)
        update = (exact - p).norm()
        tensors[f"{case}.p.{name}"] = exact
        tensors[f"{case}.update.{name}"] = update.reshape(1)
        tensors[f"{case}.bf16_error.{name}"] = ((low - exact).norm() / update).reshape(1)
        print(case, name, tensors[f"{case}.bf16_error.{name}"].item())
path = pathlib.Path(__file__).with_name("muon") / "muon.safetensors"
save_file(tensors, path, metadata={"torch": torch.__version__})
