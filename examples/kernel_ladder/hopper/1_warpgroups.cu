// Rung 1, warpgroups: four warps multiply 64 x 16 by 16 x 256 elements in one wgmma, which reads both from
// shared memory. All threads copy the next tiles meanwhile.
#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/hopper/tiles.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::hopper {
namespace {

constexpr int kThreads = 2 * gpu::kWarpgroup, kStages = 2, kBatch = 4;

/// Copies a tile to the places of the 128-byte swizzle. A thread has kBatch loads of 16 bytes in flight. Elements
/// beyond the matrix become zeros.
template <int kTileRows, int kChannels>
__device__ void copy_tile(const gpu::PanelTile<bfloat16, kTileRows, kChannels>& tile,
                          const bfloat16* from, std::int64_t height, std::int64_t width,
                          std::int64_t row0, std::int64_t column0) {
  constexpr int kChunk = 8, kChunks = kChannels / kChunk, kPanelChunks = gpu::kPanel / kChunk;
  static_assert(kTileRows * kChunks % (kBatch * kThreads) == 0);
  const int thread = static_cast<int>(threadIdx.x);
  for (int first = thread; first < kTileRows * kChunks; first += kBatch * kThreads) {
    uint4 values[kBatch];
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const int i = first + n * kThreads;
      const std::int64_t row = row0 + i / kChunks, column = column0 + i % kChunks * kChunk;
      const bool inside = row < height && column < width;
      values[n] = inside ? *reinterpret_cast<const uint4*>(from + row * width + column) : uint4{};
    }
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const int i = first + n * kThreads;
      const int row = i / kChunks, panel = i % kChunks / kPanelChunks, chunk = i % kPanelChunks;
      bfloat16* const to =
          tile.data + (panel * kTileRows + row) * gpu::kPanel + (chunk ^ row % 8) * kChunk;
      gpu::write_for_engines(*reinterpret_cast<uint4*>(to), values[n]);
    }
  }
}

__device__ void copy_tiles(const StepTiles& tiles, const Problem& p, const Place& place,
                           std::int64_t depth) {
  copy_tile(tiles.a(), p.a, p.M, p.K, place.row, depth);
  copy_tile(tiles.b(), p.b, p.K, p.N, depth, place.column);
  gpu::fence_shared_for_engines();
}

__global__ void __launch_bounds__(kThreads, 1) matmul_kernel(Problem p) {
  if constexpr (gpu::kHasHopper) {
    gpu::TileMemory shared;
    auto* const memory = shared.take<bfloat16>(kStages * StepTiles::kElements, 1024);
    const Place place{static_cast<int>(blockIdx.y) * kRows,
                      static_cast<int>(blockIdx.x) * kColumns};
    const int group = static_cast<int>(threadIdx.x) / gpu::kWarpgroup;
    Sums sum;
    copy_tiles({memory}, p, place, 0);
    int stage = 0;
    for (std::int64_t depth = 0; depth < p.K; depth += kDepth, stage ^= 1) {
      __syncthreads();  // these tiles are there, and all have read the last ones
      const StepTiles now{memory + stage * StepTiles::kElements};
      const StepTiles next{memory + (stage ^ 1) * StepTiles::kElements};
      now.start_products(sum, group, depth > 0);
      if (depth + kDepth < p.K) copy_tiles(next, p, place, depth + kDepth);
      gpu::wait_products<0>(sum);
    }
    store_sums(p, place, group, sum);
  }
}

}  // namespace

void warpgroups(const Problem& p) {
  const dim3 grid(gpu::blocks_for(p.N, kColumns), gpu::blocks_for(p.M, kRows));
  gpu::launch(matmul_kernel, grid, dim3(kThreads), kStages * StepTiles::kBytes, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::hopper
