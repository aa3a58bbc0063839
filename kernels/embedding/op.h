// Table lookup: y[n, :] = table[ids[n], :].
//
//   table [V, C] floating; ids [N] i32; y [N, C]
//   backward: dtable[v, :] (+)= sum over n with ids[n] = v of dy[n, :]
//
// dtable may be f32 while dy has 16 bits.
//
// The order of the sum is fixed, the same on every device. An id's occurrences are taken in order
// of n and cut into runs of kEmbeddingRun. The last run takes the rest, so fewer than two runs'
// worth is one run. The rows of the first run are added to the table's row one after another. Every
// other run is summed separately, in parallel if a token fills half the batch, and the sums are
// added in order. The result is rounded once.
//
// Occurrences of padding_id add nothing to dtable, as PyTorch's padding_idx has it.
//
// An id outside [0, V) raises Error that names its position: on the CPU at once, with nothing
// written; on CUDA when the stream is next synchronized, with all other rows done.
#pragma once

#include <optional>

#include "kernels/op.h"

namespace tessera {

inline constexpr std::int64_t kEmbeddingRun = 64;

void embedding_forward(Out y, const Tensor& table, const Tensor& ids);
void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate,
                        std::optional<std::int64_t> padding_id = std::nullopt);

namespace cpu {
decltype(tessera::embedding_forward) embedding_forward;
decltype(tessera::embedding_backward) embedding_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::embedding_forward) embedding_forward;
decltype(tessera::embedding_backward) embedding_backward;
}  // namespace cuda

}  // namespace tessera
