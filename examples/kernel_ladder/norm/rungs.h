// The rungs of the ladder of RMS norms, in files of their names.
#pragma once

#include <cstdint>

#include "examples/kernel_ladder/rung.h"

namespace tessera::kernel_ladder::norm {

/// y = x rstd weight in every row, with rstd = 1 / sqrt(mean of x^2 + epsilon). x and y are [N, C],
/// weight is [C] and rstd is [N].
struct Norm {
  std::int64_t N, C;
  const float* x;
  const float* weight;
  float* y;
  float* rstd;
  float epsilon = 1e-5f;
};

void whole_passes(const Norm& p);
void row_by_row(const Norm& p);
void vector_sums(const Norm& p);
void threads(const Norm& p);

inline constexpr Rung<Norm> kRungs[] = {
    {"whole_passes", whole_passes},
    {"row_by_row", row_by_row},
    {"vector_sums", vector_sums},
    {"threads", threads, cpu::Isa::avx2, true},
};

}  // namespace tessera::kernel_ladder::norm
