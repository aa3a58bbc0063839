// Table lookup: y[n, :] = table[ids[n], :].
//
//   table [V, C] floating, ids [N] i32, y [N, C]
//   backward: dtable[v, :] (+)= sum over n with ids[n] = v of dy[n, :]. dtable may be f32 beside a
//   16-bit dy.
//
// The sum's order is fixed, the same on every device: an id's occurrences are taken in order of n
// and cut in runs of kEmbeddingRun, the last of which takes the rest (so fewer than two runs' worth
// is one run). The first run is added to the row one after another; every other run is summed by
// itself, so that a token that fills half the batch can be summed in parallel, and the sums are
// added in order. Rounded once.
//
// An id outside [0, V) raises Error that names its position: on the CPU at once, with nothing
// written; on CUDA when the stream is next synchronized, with all other rows done.
#pragma once

#include "kernels/op.h"

namespace tessera {

inline constexpr std::int64_t kEmbeddingRun = 64;

void embedding_forward(Out y, const Tensor& table, const Tensor& ids);
void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate);

namespace cpu {
decltype(tessera::embedding_forward) embedding_forward;
decltype(tessera::embedding_backward) embedding_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::embedding_forward) embedding_forward;
decltype(tessera::embedding_backward) embedding_backward;
}  // namespace cuda

}  // namespace tessera
