"""Writes fp8_form/fp8_form.safetensors: a matrix that Transformers puts into its form of 8 bits
(pip install torch==2.15.0 transformers==5.23.0 safetensors).

  weight             bf16 [256, 384]: blocks of many sizes, one of zeros, one with a lone outlier
  numbers            f8_e4m3 [256, 384]
  inverse_scales     f32 [2, 3]
"""

import pathlib
import types

import torch
import transformers
from safetensors.torch import save_file
from transformers import FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import Fp8Quantize

quantizer = types.SimpleNamespace(quantization_config=FineGrainedFP8Config())
generator = torch.Generator().manual_seed(1)
sizes = torch.tensor([[1.0, 0.02, 0.0], [1e-30, 3e4, 0.02]]).repeat_interleave(128, 0).repeat_interleave(128, 1)
weight = (sizes * torch.randn(256, 384, generator=generator)).to(torch.bfloat16)
weight[200, 300] = 10.0
quantized = Fp8Quantize(quantizer)._quantize_one("layer.weight", weight)
numbers, inverse_scales = quantized["layer.weight"], quantized["layer.weight_scale_inv"]
folder = pathlib.Path(__file__).parent / "fp8_form"
folder.mkdir(exist_ok=True)
save_file({"weight": weight, "numbers": numbers, "inverse_scales": inverse_scales},
          folder / "fp8_form.safetensors",
          metadata={"made_by": f"torch {torch.__version__}, transformers {transformers.__version__}"})
