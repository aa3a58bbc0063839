"""Writes nf4/nf4.safetensors: matrices that bitsandbytes packs (pip install torch bitsandbytes==0.50.2 safetensors numpy).

  values             f32 [16], of the codes of elements
  scale_values       f32 [256], of the codes of scales
  <name>.weight      bf16 [R, C]
  <name>.codes       u8 [R, C / 2], two elements a byte
  <name>.scales      u8 [R, C / 64], the codes of the blocks' scales
  <name>.ranges      f32 [groups], of 256 scales each
  <name>.mean        f32 [1], of the scales
  <name>.unpacked    f32 [R, C]
"""

import pathlib

import bitsandbytes
import torch
from bitsandbytes import functional
from safetensors.torch import save_file

# Groups end within rows; rows are longer than a group; a block of zeros and a lone outlier.
SHAPES = {"rows": (24, 1408), "long": (2, 17408), "odd": (5, 192)}

generator = torch.Generator().manual_seed(1)
tensors = {"values": functional.get_4bit_type("nf4", device="cpu"), "scale_values": functional.create_dynamic_map()}
for name, (rows, columns) in SHAPES.items():
    sizes = 0.02 * torch.exp(torch.randn(rows, 1, generator=generator))
    weight = (sizes * torch.randn(rows, columns, generator=generator)).to(torch.bfloat16)
    if name == "odd":
        weight[1, 64:128] = 0.0
        weight[3, 7] = 10.0
    packed, state = functional.quantize_4bit(weight.float(), quant_type="nf4", compress_statistics=True)
    assert state.blocksize == 64 and state.state2.blocksize == 256
    tensors[f"{name}.weight"] = weight
    tensors[f"{name}.codes"] = packed.reshape(rows, columns // 2)
    tensors[f"{name}.scales"] = state.absmax.reshape(rows, columns // 64)
    tensors[f"{name}.ranges"] = state.state2.absmax
    tensors[f"{name}.mean"] = state.offset.reshape(1)
    tensors[f"{name}.unpacked"] = functional.dequantize_4bit(packed, state)
folder = pathlib.Path(__file__).parent / "nf4"
folder.mkdir(exist_ok=True)
save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "nf4.safetensors",
          metadata={"made_by": f"torch {torch.__version__}, bitsandbytes {bitsandbytes.__version__}"})
