// Grids for rows: a block works in one row, a thread on one item.
//
// An item is often 16 bytes.
#pragma once

#include "kernels/cuda/launch.h"

namespace tessera::gpu {

/// Row n belongs to the blocks with blockIdx.x = n, which share it in slices of nearly equal size,
/// blockIdx.y. So a thread finds its row without a division.
struct RowGrid {
  dim3 blocks, threads;
};
inline RowGrid row_grid(std::int64_t rows, std::int64_t items) {
  const std::int64_t slices = ceil_div(items, kThreads);
  const std::int64_t threads = ceil_div(items, slices);  // at most kThreads
  return {dim3(static_cast<unsigned>(rows), static_cast<unsigned>(slices)),
          dim3(static_cast<unsigned>(round_up(threads, 32)))};
}

/// This thread's item. It may lie behind the row's last item.
__device__ inline std::int64_t item_of_row() {
  return static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}

}  // namespace tessera::gpu
