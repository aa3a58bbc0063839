// Gated linear unit with SiLU (Shazeer 2020; Llama's, Qwen's and Mixtral's feed-forward):
//
//   y = silu(gate) * up,    silu(g) = g s(g),  s(g) = 1 / (1 + e^-g)
//   dup   = dy silu(gate)
//   dgate = dy up s (1 + gate (1 - s))
//
// gate and up are columns of tensors, as heads are of a packed one (attention/op.h), because
// weights come both ways: Hugging Face's Llama and Qwen have two, gate_proj and up_proj, whose
// products are two tensors [N, F]; Llama 4's experts have one, gate_up_proj, and so may whoever
// keeps the two side by side in memory, to read the input once: its product [N, 2F] has gate in the
// first F columns and up in the last. Both cost the same here.
//
// gate and up are saved for backward, which may write over them: dgate over gate, dup over up.
#pragma once

#include "kernels/op.h"

namespace tessera {

/// Columns [first, first + count) of a [N, ...] tensor.
struct Columns {
  Tensor tensor;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// All columns of `tensor`; the lower or upper half of them.
Columns all_columns(const Tensor& tensor);
Columns first_half(const Tensor& tensor);
Columns second_half(const Tensor& tensor);

void swiglu_forward(Out y, const Columns& gate, const Columns& up);
void swiglu_backward(const Columns& dgate, const Columns& dup, const Tensor& dy,
                     const Columns& gate, const Columns& up);

namespace cpu {
decltype(tessera::swiglu_forward) swiglu_forward;
decltype(tessera::swiglu_backward) swiglu_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::swiglu_forward) swiglu_forward;
decltype(tessera::swiglu_backward) swiglu_backward;
}  // namespace cuda

}  // namespace tessera
