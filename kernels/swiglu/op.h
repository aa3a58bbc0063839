// Gated linear unit with SiLU, the feed-forward gate of Llama, Qwen and Mixtral.
//
// (Shazeer 2020.)
//
//   y = silu(gate) * up,    silu(g) = g s(g),  s(g) = 1 / (1 + e^-g)
//   dup   = dy silu(gate)
//   dgate = dy up s (1 + gate (1 - s))
//
// gate and up are columns of tensors, as heads are of a packed one (attention/op.h), because
// weights come in two forms. Hugging Face's Llama and Qwen have gate_proj and up_proj: two products
// [N, F]. Llama 4's experts have one gate_up_proj, so that the input is read once: a product [N,
// 2F] with gate in its first F columns and up in its last. Both forms cost the same here.
//
// gate and up are saved for backward. dgate and dup may be gate and up.
#pragma once

#include "kernels/op.h"

namespace tessera {

/// Columns [first, first + count) of a [N, ...] tensor.
struct Columns {
  Tensor tensor;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// All columns of `tensor`, or their first or second half.
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
