// GPU rung 4, tensor cores: a warp multiplies 16 x 16 by 16 x 8 elements of bf16 in one instruction,
// and the next tiles are copied meanwhile.
#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_core.h"

namespace tessera::kernel_ladder::matmul {
namespace {

// A block has a tile of c, kSide x kSide, and takes kDepth of k at a time. Its 8 warps have 2 x 4 parts
// of it. A part is 4 x 4 products of 16 x 8.
constexpr int kSide = 128, kDepth = 32, kThreads = 256, kWarp = 32;
constexpr int kPartRows = 64, kPartColumns = 32, kRows = 4, kColumns = 4;

// A copy is 16 bytes. Rows have 16 bytes more, so that the 8 rows of a small matrix lie in other banks.
constexpr int kChunk = 8, kPitchA = kDepth + kChunk, kPitchB = kSide + kChunk;

/// Starts to copy rows of `chunks` times 16 bytes. Elements beyond the matrix become zeros.
template <int rows, int chunks, int pitch>
__device__ void copy_tile(bfloat16* tile, const bfloat16* from, std::int64_t height,
                          std::int64_t width, std::int64_t row0, std::int64_t column0) {
#pragma unroll
  for (int i = threadIdx.x; i < rows * chunks; i += kThreads) {
    const std::int64_t row = row0 + i / chunks, column = column0 + i % chunks * kChunk;
    const bool inside = row < height && column < width;
    gpu::copy_async(tile + i / chunks * pitch + i % chunks * kChunk,
                    inside ? from + row * width + column : from, inside ? 16 : 0);
  }
}

struct Tiles {
  bfloat16 a[kSide * kPitchA], b[kDepth * kPitchB];
};

__device__ void copy_tiles(Tiles& tiles, const Product<bfloat16>& p, std::int64_t i0,
                           std::int64_t j0, std::int64_t k0) {
  copy_tile<kSide, kDepth / kChunk, kPitchA>(tiles.a, p.a, p.M, p.K, i0, k0);
  copy_tile<kDepth, kSide / kChunk, kPitchB>(tiles.b, p.b, p.K, p.N, k0, j0);
}

/// Adds a depth of 16 to a warp's part.
__device__ void multiply(float (&sum)[kRows][kColumns][4], const bfloat16* a, const bfloat16* b) {
  // A load fetches four matrices of 8 x 8. A lane has the address of one of their 32 rows.
  const int lane = threadIdx.x % kWarp, row = lane % 16, half = lane / 16 * kChunk;
  unsigned of_a[kRows][4], of_b[kColumns / 2][4];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    gpu::load_matrices<false>(of_a[i], a + (i * 16 + row) * kPitchA + half);
  }
#pragma unroll
  for (int j = 0; j < kColumns / 2; ++j) {
    gpu::load_matrices<true>(of_b[j], b + row * kPitchB + j * 16 + half);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const unsigned pair[2] = {of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]};
      gpu::multiply_accumulate<bfloat16>(sum[i][j], of_a[i], pair);
    }
  }
}

__global__ void __launch_bounds__(kThreads) matmul_kernel(Product<bfloat16> p) {
  TESSERA_SHARED(uint4, memory, [2 * sizeof(Tiles) / 16]);
  auto* const tiles = reinterpret_cast<Tiles*>(memory);
  const std::int64_t i0 = static_cast<std::int64_t>(blockIdx.y) * kSide;
  const std::int64_t j0 = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int part_row = warp / 4 * kPartRows, part_column = warp % 4 * kPartColumns;
  float sum[kRows][kColumns][4] = {};
  copy_tiles(tiles[0], p, i0, j0, 0);
  gpu::copy_async_commit();
  int now = 0;
  for (std::int64_t k0 = 0; k0 < p.K; k0 += kDepth, now ^= 1) {
    if (k0 + kDepth < p.K) copy_tiles(tiles[now ^ 1], p, i0, j0, k0 + kDepth);
    gpu::copy_async_commit();
    gpu::copy_async_wait<1>();  // only the next tiles are still on their way
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      multiply(sum, tiles[now].a + part_row * kPitchA + k,
               tiles[now].b + k * kPitchB + part_column);
    }
    __syncthreads();  // before the tiles after the next overwrite these
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int half = 0; half < 2;
           ++half) {  // a lane has two elements of a row, and of the 8th after it
        const std::int64_t row = i0 + part_row + i * 16 + half * 8 + lane / 4;
        const std::int64_t column = j0 + part_column + j * 8 + lane % 4 * 2;
        if (row >= p.M || column >= p.N) continue;
        *reinterpret_cast<float2*>(p.c + row * p.N + column) =
            make_float2(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
      }
    }
  }
}

}  // namespace

void tensor_cores(const Product<bfloat16>& p) {
  const dim3 grid(gpu::blocks_for(p.N, kSide), gpu::blocks_for(p.M, kSide));
  gpu::launch(matmul_kernel, grid, dim3(kThreads), 0, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::matmul
