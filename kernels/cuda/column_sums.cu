// The host's part of sums over rows.
#include "kernels/cuda/column_sums.h"

namespace tessera::gpu {
namespace {

/// As small as groups can be if the lines are added in as few steps as there can be.
unsigned blocks_of_group(std::int64_t chunks) {
  const auto lines_of = [](std::int64_t blocks, int steps) {
    std::int64_t lines = 1;
    for (int i = 0; i < steps; ++i) lines *= blocks;
    return lines;
  };
  int steps = 1;
  while (lines_of(LineSums::kMostOfGroup, steps) < chunks) ++steps;
  unsigned blocks = 1;
  while (lines_of(blocks, steps) < chunks) ++blocks;
  return blocks;
}

}  // namespace

LineSums line_sums(std::initializer_list<RowSums> targets, const PartialLines& lines) {
  LineSums result{.of = {},
                  .lines = lines.data(),
                  .per_chunk = lines.per_chunk,
                  .stride = lines.stride,
                  .columns = 0,
                  .blocks_of_group = blocks_of_group(lines.chunks),
                  .tickets = cuda::tickets(current_stream())};
  int count = 0;
  for (const auto& [sums, accumulate] : targets) {
    if (sums.defined()) {
      result.of[count] = {sums.raw(), sums.dtype(), accumulate == Accumulate::yes};
      result.columns = sums.numel();
    }
    ++count;
  }
  return result;
}

void sum_no_rows(std::initializer_list<RowSums> targets) {
  for (const auto& [sums, accumulate] : targets) {
    if (sums.defined() && accumulate == Accumulate::no) sums.zero();
  }
}

}  // namespace tessera::gpu
