// Gated linear unit: SwiGLU, the feed-forward gate of Llama, Qwen and Mixtral, or GeGLU, that of Gemma.
//
// (Shazeer 2020.)
//
//   y = a(gate) * up,  dup = dy a(gate),  dgate = dy up a'(gate)
//
//   silu   a(g) = g s,  a'(g) = s (1 + g (1 - s)),  s = 1 / (1 + e^-g)
//   gelu   a(g) = gelu(g) in the form of tanh (gelu/op.h)
//
// gate and up are columns of tensors, as heads are of a packed one (attention/op.h), because the
// results come in two forms: two products [N, F], or one [N, 2F], whose input is read once, with gate
// in its first F columns and up in its last. Both forms cost the same here.
//
// gate and up are saved for backward. dgate and dup may be gate and up.
//
// weighed_swiglu_backward is the backward pass of rows at experts (dispatch/op.h), whose result was
// weighed and not kept: y[p] = w[n, s] h[p], h = silu(gate) * up. One pass over the rows makes the
// gradients, and y once more for the gradient of the product that read it:
//
//   dweights[n, s] = sum over f of dy[p, f] h[p, f],    dgate and dup as above, from w dy
//
//   dy, y [P, F]                       y may be dy
//   places, weights, dweights [N, k]   undefined: no row is weighed, y = h
//   dweights [S, N, k]                 f32 (f64 for f64): the sums over S equal parts of f, for each part
//
// The bits are those of swiglu_forward, weigh_backward and swiglu_backward, one after the other. On a
// GPU dweights is added in another order if some of the tensors are not aligned, or if the pass is a part of a
// product (grouped_matmul_swiglu_backward).
#pragma once

#include "kernels/columns/op.h"

namespace tessera {

/// The activation of a gate.
enum class Gate { silu, gelu };

void swiglu_forward(Out y, const Columns& gate, const Columns& up, Gate activation = Gate::silu);
void swiglu_backward(const Columns& dgate, const Columns& dup, const Tensor& dy,
                     const Columns& gate, const Columns& up, Gate activation = Gate::silu);
void weighed_swiglu_backward(Out y, Out dweights, const Columns& dgate, const Columns& dup,
                             const Tensor& dy, const Columns& gate, const Columns& up,
                             const Tensor& places, const Tensor& weights);

namespace cpu {
decltype(tessera::swiglu_forward) swiglu_forward;
decltype(tessera::swiglu_backward) swiglu_backward;
decltype(tessera::weighed_swiglu_backward) weighed_swiglu_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::swiglu_forward) swiglu_forward;
decltype(tessera::swiglu_backward) swiglu_backward;
decltype(tessera::weighed_swiglu_backward) weighed_swiglu_backward;
}  // namespace cuda

}  // namespace tessera
