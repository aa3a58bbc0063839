// Products of the dispatched rows of each expert with the expert's weight.
//
// Expert e has the rows [offsets[e], offsets[e + 1]) of a dispatched tensor (dispatch/op.h), and
// matrix e of a stacked weight.
//
//   grouped_matmul          c[rows of e] = a[rows of e] op(b_e)
//                           a [P, K], op(b_e) [K, N], c [P, N]; b [E, K, N], or [E, N, K] transposed
//   grouped_matmul_part     c[rows of e] = the part of these sums over some depths, in f32 (f64 for f64)
//                           depths: ranges of [0, K), added in their order (matmul/parts.h)
//   grouped_matmul_swiglu   the first, and y = silu(gate) * up (swiglu/op.h)
//                           c's columns are gate, then up; y [P, N / 2]
//   grouped_matmul_swiglu_backward   d = a op(b) is the gradient of rows w silu(gate) * up, and is not kept:
//                           d, then weighed_swiglu_backward (swiglu/op.h) with y [P, N] in d's place
//                           gate_up, dgate_up [P, 2 N]: gate, then up
//   grouped_matmul_weight   c_e = a[rows of e]^T b[rows of e], or c_e += ...
//                           a [P, M], b [P, N], c [E, M, N]
//
// The first four also take several groups of rows per expert, as of tokens from several ranks: with
// offsets [G E + 1] group i has the rows [offsets[i], offsets[i + 1]) and takes matrix i mod E.
//
// offsets [E + 1] i32 ascend from 0; rows from offsets[E] on are neither read nor written (but y's may
// be written). grouped_matmul_swiglu_backward has no such rows: offsets[E] = P. An expert without rows costs
// nothing, and its matrix of c is zero (or stays, when accumulating).
//
// A linear layer with weights [E, out, in], y_e = x_e W_e^T, takes
//
//   y = grouped_matmul(x, W, transposed), dx = grouped_matmul(dy, W), dW = ..._weight(dy, x)
//
// and with weights [E, in, out] y = (x, W), dx = (dy, W, transposed), dW = (x, dy).
//
// The rows may stay with their tokens (gathered.h).
//
// All tensors have one floating dtype; c of grouped_matmul_weight may be f32 while a and b have 16
// bits. Sums are f32 (f64 for f64), rounded once. A part is not rounded. y has the bits of a separate swiglu: it is a
// step of the product on the CPU (matmul/cpu/steps.h), and on a GPU where Hopper's kernel multiplies.
//
// That kernel makes the gradients of swiglu, too, if `slots` (dispatch/op.h) tells it whose weight a row has. They
// and y have the bits of separate operations. dweights is added in another order: each tile of 256 columns (of 128,
// if there are no more) has a part, and the parts are added in order. They take workspace, [tiles, P] f32.
//
// On the CPU an expert's bits depend neither on the number of threads nor on the other experts
// (matmul/cpu/product.h). On a GPU all experts are one launch. The grid has the largest number of
// tiles that P rows of E experts can have, and each block looks for its expert in `offsets`: the
// host does not know the counts.
#pragma once

#include "kernels/matmul/parts.h"

namespace tessera {

void grouped_matmul(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                    Transpose transpose_b = Transpose::no);
void grouped_matmul_part(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                         Transpose transpose_b, const DepthPart& depths);
void grouped_matmul_swiglu(Out y, Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Transpose transpose_b = Transpose::no);
/// dgate_up may be gate_up. `places`, `slots` and `weights` are those of the rows. Without weights
/// y = silu(gate) * up. slots may be undefined.
void grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const Tensor& a,
                                    const Tensor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights, Transpose transpose_b = Transpose::no);
void grouped_matmul_weight(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Accumulate accumulate = Accumulate::no);

namespace cpu {
decltype(tessera::grouped_matmul) grouped_matmul;
decltype(tessera::grouped_matmul_part) grouped_matmul_part;
decltype(tessera::grouped_matmul_swiglu) grouped_matmul_swiglu;
decltype(tessera::grouped_matmul_weight) grouped_matmul_weight;
}  // namespace cpu
namespace cuda {
decltype(tessera::grouped_matmul) grouped_matmul;
decltype(tessera::grouped_matmul_part) grouped_matmul_part;
/// As one launch. False, and nothing is done, if no kernel has both. Without offsets one matrix
/// multiplies all rows: a dense layer.
bool grouped_matmul_swiglu(Out y, Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Transpose transpose_b);
/// As one launch, and one more for dweights. False, and nothing is done, if no kernel has both. Without
/// offsets as above. Without y only dgate_up is stored.
bool grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const Tensor& a,
                                    const Tensor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& slots, const Tensor& weights,
                                    Transpose transpose_b);
/// As one launch, of a dense layer: pre [P, N] = x op(b) + bias, and y = gelu(pre) in the form of tanh, of pre as it is
/// stored. x [P, K]; bias [N]. False, and nothing is done, if no kernel has both: N is at least 256.
bool matmul_gelu(Out y, Out pre, const Tensor& x, const Tensor& b, const Tensor& bias,
                 Transpose transpose_b);
/// As one launch, of a dense layer: dpre [P, N], the gradient of pre, from the gradient dy op(b) [P, N] of gelu(pre),
/// which is not stored; dy [P, K]. *row_sums, if it is not null, becomes f32 [L, N]: lines of sums of 128 rows of dpre.
bool matmul_gelu_backward(Out dpre, Tensor* row_sums, const Tensor& dy, const Tensor& b,
                          const Tensor& pre, Transpose transpose_b);
decltype(tessera::grouped_matmul_weight) grouped_matmul_weight;
}  // namespace cuda

}  // namespace tessera
