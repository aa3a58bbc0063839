// The second step of sums over rows: adding the chunks' lines, in a launch of its own.
//
// Traffic: one float per chunk and column, mostly from the second-level cache. A block takes 32
// columns of one vector of sums. Its thread (x, y) adds lines y, y + 32, ... of column x, and the
// first warp adds the 32 groups. Latency matters here, not bandwidth: with at most some 500 chunks,
// all loads of a thread are in flight at once.
#include "kernels/cuda/column_sums.h"

namespace tessera::gpu {
namespace {

constexpr int kGroups = 32;

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

__global__ void __launch_bounds__(32 * kGroups)
    add_lines_kernel(LineSums sums, std::int64_t chunks) {
  TESSERA_SHARED(float, groups, [kGroups][32]);
  const SumTarget target = blockIdx.y == 0 ? sums.of[0] : sums.of[1];
  if (target.data == nullptr) return;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float* const first = sums.lines + blockIdx.y * sums.stride + column;
  const std::int64_t to_next_chunk = gridDim.y * sums.stride;
  float sum = 0.0f;
  if (column < sums.columns) {
#pragma unroll 16
    for (std::int64_t chunk = threadIdx.y; chunk < chunks; chunk += kGroups) {
      sum += first[chunk * to_next_chunk];
    }
  }
  groups[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= sums.columns) return;
  float total = 0.0f;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) total += groups[group][threadIdx.x];
  target.add(column, total, sums.accumulate);
}

}  // namespace

LineSums line_sums(std::initializer_list<Tensor> sums, const PartialLines& lines,
                   Accumulate accumulate) {
  LineSums result{.of = {},
                  .lines = lines.data(),
                  .per_chunk = lines.per_chunk,
                  .stride = lines.stride,
                  .columns = 0,
                  .accumulate = accumulate == Accumulate::yes,
                  .blocks_of_group = blocks_of_group(lines.chunks),
                  .tickets = cuda::tickets(current_stream())};
  int count = 0;
  for (const Tensor& sum : sums) {
    if (sum.defined()) {
      result.of[count] = {sum.raw(), sum.dtype()};
      result.columns = sum.numel();
    }
    ++count;
  }
  return result;
}

void add_lines(std::initializer_list<Tensor> sums, const PartialLines& lines,
               Accumulate accumulate) {
  const LineSums of_lines = line_sums(sums, lines, accumulate);
  if (of_lines.columns == 0) return;
  const dim3 blocks(blocks_for(of_lines.columns, 32, INT32_MAX),
                    static_cast<unsigned>(lines.per_chunk));
  launch(add_lines_kernel, blocks, dim3(32, kGroups), 0, stream(), of_lines, lines.chunks);
}

}  // namespace tessera::gpu
