// The tiles of a step for wgmma, and the sums of a warpgroup (sm_90a).
#pragma once

#include "examples/kernel_ladder/matmul/product.h"
#include "kernels/cuda/panel_tile.h"

namespace tessera::kernel_ladder::hopper {

using Problem = Product<bfloat16>;

/// A thread block has a tile of c, and takes kDepth of k in a step. Two warpgroups have 64 rows each.
inline constexpr int kRows = 128, kColumns = 256, kDepth = 64, kGroupRows = 64;

/// A thread's part of 64 x 256 sums, in pieces of eight columns.
using Sums = float[kColumns / 8][4];

/// The first element of a tile of c.
struct Place {
  int row, column;
};

struct StepTiles {
  using Element = bfloat16;
  using A = gpu::PanelTile<bfloat16, kRows, kDepth>;
  using B = gpu::PanelTile<bfloat16, kDepth, kColumns>;
  static constexpr int kElements = A::kElements + B::kElements, kBytes = A::kBytes + B::kBytes;
  bfloat16* data;

  __device__ A a() const { return {data}; }
  __device__ B b() const { return {data + A::kElements}; }

  /// Starts sum += a b for the rows of warpgroup `group`, or sum = a b.
  __device__ void start_products(Sums& sum, int group, bool add) const {
    gpu::begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      gpu::multiply_tiles<bfloat16, gpu::Panels::of_rows_of_b, kColumns>(
          sum, a().rows(kGroupRows * group, step), b().columns(step), add || step > 0);
    }
    gpu::commit_products();
  }
};

/// Stores a thread's sums. A lane has two elements of a row, and of the eighth row after it.
__device__ inline void store_sums(const Problem& p, const Place& place, int group,
                                  const Sums& sum) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32 % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = place.row + kGroupRows * group + 16 * warp + 8 * half + lane / 4;
    if (row >= p.M) break;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = place.column + 8 * n + lane % 4 * 2;
      if (column >= p.N) break;
      *reinterpret_cast<float2*>(p.c + row * p.N + column) =
          float2{sum[n][2 * half], sum[n][2 * half + 1]};
    }
  }
}

}  // namespace tessera::kernel_ladder::hopper
