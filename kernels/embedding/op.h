// Table lookup: y[n, :] = table[ids[n], :].
//
//   table [V, C] floating, ids [N] i32, y [N, C]
//   backward: dtable[v, :] (+)= sum over n with ids[n] = v of dy[n, :], added in order of n, so the
//   result is deterministic. dtable may be f32 beside a 16-bit dy.
// An id outside [0, V) raises Error that names its position.
#pragma once

#include "kernels/op.h"

namespace tessera {

void embedding_forward(Out y, const Tensor& table, const Tensor& ids);
void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate);

namespace cpu {
void embedding_forward(Out y, const Tensor& table, const Tensor& ids);
void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate);
}  // namespace cpu

}  // namespace tessera
