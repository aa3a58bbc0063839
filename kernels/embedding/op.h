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
// The table may be rows [part.first, part.first + V) of a longer one of part.all rows, whose other rows
// other ranks have. Then ids of other rows yield zeros, and have no gradient here.
//
// Occurrences of padding_id add nothing to dtable, as PyTorch's padding_idx has it.
//
// An id outside the (longer) table raises Error that names its position: on the CPU at once, with nothing
// written; on CUDA when the stream is next synchronized, with all other rows done.
#pragma once

#include <optional>

#include "kernels/op.h"

namespace tessera {

inline constexpr std::int64_t kEmbeddingRun = 64;

/// The place of a table in a longer one; by default it is all of the table.
struct TablePart {
  std::int64_t first = 0;
  std::optional<std::int64_t> all = std::nullopt;

  std::int64_t rows_of_all(const Tensor& table) const { return all.value_or(table.size(0)); }
};

void embedding_forward(Out y, const Tensor& table, const Tensor& ids, const TablePart& part = {});
/// padding_id is a row of the longer table.
void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate,
                        std::optional<std::int64_t> padding_id = std::nullopt,
                        const TablePart& part = {});

namespace cpu {
decltype(tessera::embedding_forward) embedding_forward;
decltype(tessera::embedding_backward) embedding_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::embedding_forward) embedding_forward;
decltype(tessera::embedding_backward) embedding_backward;
}  // namespace cuda

}  // namespace tessera
