// Grids for tensors of rows: a block works in one row, a thread on one item of it (often 16 bytes).
#pragma once

#include "kernels/cuda/launch.h"

namespace tessera::gpu {

/// Row n goes to the blocks blockIdx.x = n, cut in slices of nearly equal size, blockIdx.y. So
/// finding a thread's row takes no division.
struct RowGrid {
  dim3 blocks, threads;
};
inline RowGrid row_grid(std::int64_t rows, std::int64_t items) {
  const std::int64_t slices = (items + kThreads - 1) / kThreads;
  const std::int64_t threads = (items + slices - 1) / slices;  // at most kThreads
  return {dim3(static_cast<unsigned>(rows), static_cast<unsigned>(slices)),
          dim3(static_cast<unsigned>((threads + 31) / 32 * 32))};
}

/// This thread's item; it may be beyond the row's last.
__device__ inline std::int64_t item_of_row() {
  return static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}

}  // namespace tessera::gpu
