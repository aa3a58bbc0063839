// Sums over the rows of a matrix, such as gradients of weights.
//
// Rows are cut into chunks. Each chunk adds its rows into its own line of partial sums, and the
// lines are added in chunk order. So the bits do not depend on the number of threads.
#pragma once

#include <algorithm>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/op.h"

namespace tessera::cpu {

/// Rows per chunk: few enough to keep many threads busy, and enough that there are at most
/// kMostRowChunks lines of partial sums.
inline std::int64_t rows_per_chunk(std::int64_t rows) {
  constexpr std::int64_t kFewestRows = 16;
  constexpr std::int64_t kMostRowChunks = 64;
  return std::max(kFewestRows, chunk_count(rows, kMostRowChunks));
}

/// sums[c] (+)= partials[0, c] + partials[1, c] + ... for `columns` columns. `stride` is the
/// distance from one chunk's line to the next.
template <typename T, typename Partial>
void add_partials(T* sums, const Partial* partials, std::int64_t chunks, std::int64_t stride,
                  std::int64_t columns, Accumulate accumulate) {
  constexpr std::int64_t kColumns = 256;  // one tile of totals stays in registers and L1
  parallel_for(columns, kColumns, [&](std::int64_t begin, std::int64_t end) {
    Partial totals[kColumns] = {};
    const std::int64_t width = end - begin;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const Partial* line = partials + chunk * stride + begin;
      for (std::int64_t c = 0; c < width; ++c) totals[c] += line[c];
    }
    for (std::int64_t c = 0; c < width; ++c) {
      T& sum = sums[begin + c];
      const auto before =
          accumulate == Accumulate::yes ? static_cast<Partial>(load(sum)) : Partial{0};
      store_as(sum, before + totals[c]);
    }
  });
}

}  // namespace tessera::cpu
