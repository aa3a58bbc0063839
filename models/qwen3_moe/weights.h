// The names of Qwen3-MoE's tensors in Hugging Face's files.
#pragma once

#include "models/tensor_names.h"

namespace tessera {

/// Files hold every expert's matrices by themselves:
///
///   mlp.experts.3.gate_proj.weight [F, C]    rows [0, F) of matrix 3 of mlp.experts.gate_up_proj
///   mlp.experts.3.up_proj.weight [F, C]      rows [F, 2 F)
///   mlp.experts.3.down_proj.weight [C, F]    matrix 3 of mlp.experts.down_proj
///
/// The stacked parameters are read too. For the rest, names are those of the Llama family.
TensorNames qwen3_moe_tensor_names();

}  // namespace tessera
