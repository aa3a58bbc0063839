// How a block of a grouped product finds its expert and its operands.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace tessera::cuda::groups {

/// An operand of one expert's product, by the index that the product keeps (a row of c for a, a
/// column for b) and by the depth that it sums over.
template <typename T>
struct Operand {
  const T* first;
  std::int64_t stride;    // between neighbours of the other index than the contiguous one
  bool depth_contiguous;  // or the kept index is

  __device__ const T* at(std::int64_t kept, std::int64_t depth) const {
    return first + (depth_contiguous ? kept * stride + depth : depth * stride + kept);
  }
};

/// One expert's product, and the first element of the block's tile.
template <typename T, typename U>
struct ExpertProduct {
  Operand<T> a, b;
  U* c;
  std::int64_t rows, columns, depth;
  std::int64_t row, column;
};

struct TileOfExpert {
  int expert;  // -1: there is no such tile
  std::int64_t tile;
};

/// The tiles of `tile_rows` rows of all experts. The whole warp calls this.
__device__ inline unsigned count_tiles(const std::int32_t* offsets, int experts, int tile_rows) {
  unsigned count = 0;
  for (int e = static_cast<int>(threadIdx.x % 32); e < experts; e += 32) {
    count += static_cast<unsigned>((offsets[e + 1] - offsets[e] + tile_rows - 1) / tile_rows);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    count += __shfl_xor_sync(gpu::kFullWarp, count, distance);
  }
  return count;
}

/// Expert e's rows are cut into tiles of `tile_rows`. The tiles of all experts are numbered in order;
/// finds tile `index`. The whole warp calls it: it adds up the tiles of 32 experts at a time.
__device__ inline TileOfExpert find_tile(const std::int32_t* offsets, int experts, int tile_rows,
                                         std::int64_t index) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::int64_t before = 0;  // tiles of the experts before these 32
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane;
    const int tiles = e < experts ? (offsets[e + 1] - offsets[e] + tile_rows - 1) / tile_rows : 0;
    int end = tiles;  // of the tiles of the experts up to this one
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(gpu::kFullWarp, end, distance);
      if (lane >= distance) end += other;
    }
    const unsigned behind = __ballot_sync(gpu::kFullWarp, before + end > index);
    if (behind != 0) {
      const int found = __ffs(static_cast<int>(behind)) - 1;
      return {first + found, index - before - __shfl_sync(gpu::kFullWarp, end - tiles, found)};
    }
    before += __shfl_sync(gpu::kFullWarp, end, 31);
  }
  return {-1, 0};
}

/// A line of sums has so many rows of c.
inline constexpr int kRowsOfLine = 128;

/// The operand that has its rows where tokens are: row p is row slots[p] / per_token of it.
enum class Gathered { none, a, b };

/// The products of all experts: c = a op(b), or c_e (+)= a^T b for the weights.
template <typename T, typename U>
struct Problem {
  const T* a;
  const T* b;
  U* c;
  U* activated = nullptr;  // [P, N / 2]: SwiGLU of c's rows, which are gate and up; or [P, N]: GELU
  const U* gate_up = nullptr;  // [P, 2 N], like c: c is their gradient, the product that of SwiGLU
                               // or, if `activated` [P, N] is there, of weighed rows, which it gets
  const T* bias = nullptr;     // [N], with GELU
  const U* pre = nullptr;      // [P, N]: c is its gradient, the product that of GELU
  float* lines = nullptr;  // with pre: [P / kRowsOfLine, N], rounded up: sums of rows of c; or null
  const std::int32_t* slots = nullptr;  // [P]: of the rows, where they are gathered or weighed
  const U* weights = nullptr;           // by slot; null: they are 1
  float* sums = nullptr;                // [tiles across, P], by slot: their gradients' parts
  const float* inverse_a = nullptr;     // of 8-bit a and b: the value of the number 1
  const float* inverse_b = nullptr;
  Gathered gathered = Gathered::none;  // Hopper's kernel only; b of the weights only
  int per_token = 1;
  const std::int32_t* offsets;  // null: one expert has all P rows (Hopper's kernel only)
  int experts;
  int matrices;          // of b: expert e takes e mod so many
  std::int64_t P;        // dispatched rows, at most
  std::int64_t M, N, K;  // M of the weights only, K of the rows only; pairs of 8-bit numbers
  std::int64_t first_depth, depths;  // of K, of the rows only
  bool of_weights;
  bool transpose_b;
  bool accumulate;

  /// One block per tile: the largest number that there can be.
  dim3 grid(int side) const {
    const auto tiles = [=](std::int64_t extent) {
      return static_cast<unsigned>(ceil_div(extent, side));
    };
    if (of_weights) return dim3(tiles(M), tiles(N), static_cast<unsigned>(experts));
    return dim3(tiles(N) * static_cast<unsigned>(P / side + experts));
  }

  /// Finds this block's product. Returns false if the block has no tile. Neighbouring blocks take
  /// tiles side by side in c: blocks that run together read few rows of a, once, and the weights of
  /// one or two experts, which stay in the second-level cache.
  __device__ bool find(ExpertProduct<T, U>& product, int side) const {
    if (of_weights) {
      product.column = static_cast<std::int64_t>(blockIdx.y) * side;
      const int e = static_cast<int>(blockIdx.z);
      const std::int64_t first = offsets[e], count = offsets[e + 1] - first;
      product.a = {a + first * M, M, false};
      product.b = {b + first * N, N, false};
      product.c = c + e * M * N;
      product.rows = M, product.columns = N, product.depth = count;
      product.row = static_cast<std::int64_t>(blockIdx.x) * side;
      return count > 0 || !accumulate;
    }
    const auto across = static_cast<unsigned>((N + side - 1) / side);
    product.column = static_cast<std::int64_t>(blockIdx.x % across) * side;
    const TileOfExpert tile = find_tile(offsets, experts, side, blockIdx.x / across);
    if (tile.expert < 0) return false;
    const std::int64_t first = offsets[tile.expert];
    product.a = {a + first * K + first_depth, K, true};
    product.b = {b + tile.expert % matrices * K * N + first_depth * (transpose_b ? 1 : N),
                 transpose_b ? K : N, transpose_b};
    product.c = c + first * N;
    product.rows = offsets[tile.expert + 1] - first, product.columns = N, product.depth = depths;
    product.row = tile.tile * side;
    return true;
  }
};

}  // namespace tessera::cuda::groups
