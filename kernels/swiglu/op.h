// Gated linear unit with SiLU, the feed-forward gate of Llama, Qwen and Mixtral.
//
// (Shazeer 2020.)
//
//   y = silu(gate) * up,    silu(g) = g s(g),  s(g) = 1 / (1 + e^-g)
//   dup   = dy silu(gate)
//   dgate = dy up s (1 + gate (1 - s))
//
// gate and up are columns of tensors, as heads are of a packed one (attention/op.h), because the
// results come in two forms: two products [N, F], or one [N, 2F], whose input is read once, with gate
// in its first F columns and up in its last. Both forms cost the same here.
//
// gate and up are saved for backward. dgate and dup may be gate and up.
#pragma once

#include "kernels/columns/op.h"

namespace tessera {

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
