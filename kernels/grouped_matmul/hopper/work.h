// The tiles of c, by number (sm_90a).
//
// The grid is persistent: it has a thread block per multiprocessor, and each draws tiles from a queue
// (kernels/cuda/work_queue.h). The host does not know how many tiles there are, so each warp counts and
// finds them on its own. Tiles are numbered by expert, and side by side in c within one: those computed
// together read the same rows and weights.
//
// A number is a tile for each block of the cluster (kernels/cuda/cluster.h): they are below each other, in one
// expert's rows. Where the expert ends before, a block has a tile without rows.
//
// One expert with many columns is numbered in bands of 16 tiles down instead: side by side, the thread
// blocks at work would read all of b, and few rows of a.
#pragma once

#include "kernels/cuda/cluster.h"
#include "kernels/grouped_matmul/groups.h"

namespace tessera::cuda::groups {

/// Rows of a tile of c, and a step's elements along the depth: 64 depths, or 128 as pairs of 8-bit numbers.
inline constexpr int kTileRows = 128, kStepDepth = 64;
static_assert(kTileRows == kRowsOfLine);

/// The operands of a product, in the three directions of a linear layer.
enum class Direction {
  rows,             // c = a b_e: the rows of a are rows of c, those of b_e depths
  rows_transposed,  // c = a b_e^T: the rows of b_e are columns of c
  weights           // c_e (+)= a^T b: the rows of both are depths
};

/// The kernel stores c, or c and silu(gate) * up; the columns of c are gate and up then. With gated_gradient
/// the product is the gradient of silu(gate) * up, and c has those of gate and up. With weighed_gradient it is
/// the gradient of rows weight * silu(gate) * up, which are stored once more. With gelu c has a bias, and gelu(c)
/// is stored as well. With gelu_gradient the product is the gradient of gelu(pre), and c that of pre.
enum class Result { product, gated, gated_gradient, weighed_gradient, gelu, gelu_gradient };

template <Result kResult>
inline constexpr bool kIsGradient =
    kResult == Result::gated_gradient || kResult == Result::weighed_gradient;

/// Columns of c come in so many sections of equal width. A tile has the same columns of each.
template <Result kResult>
inline constexpr int kSectionsOf = kResult == Result::gated ? 2 : 1;
/// Columns of c for each column of the product.
template <Result kResult>
inline constexpr int kResultsOf = kIsGradient<kResult> ? 2 : 1;

/// A tile of c.
template <typename U>
struct Work {
  U* c;               // its first element
  U* activated;       // the same of SwiGLU's or GELU's result, if there is one
  int rows, columns;  // of the expert's c, or of a section, from there on; the tile may have less,
                      // and none if rows is 0 or less
  int section;        // columns of c from one section to the next
  int depth;          // of the sums
  gpu::TilePlace a, b;  // the first tiles of the operands
};

/// An expert without rows has no gradient to add.
template <typename Problem, typename U>
__device__ bool is_left_alone(const Problem& p, const Work<U>& work) {
  return work.depth == 0 && p.accumulate;
}

/// All tiles of c, by numbers of the cluster's. The whole warp calls the public functions.
template <Direction kDirection, int kColumns, Result kResult, typename T, typename U>
struct WorkList {
  const Problem<T, U>& p;

  __device__ unsigned count() const {
    if constexpr (kDirection == Direction::weights) {
      return static_cast<unsigned>(p.experts) * down() * across();
    } else {
      const bool one = p.offsets == nullptr;
      return (one ? tiles(p.P, height()) : count_tiles(p.offsets, p.experts, height())) * across();
    }
  }
  __device__ Work<U> find(unsigned number) const {
    if constexpr (kDirection == Direction::weights) {
      return of_weights(number);
    } else {
      return p.offsets == nullptr ? of_band(number) : of_expert(number);
    }
  }

 private:
  static constexpr unsigned kBand = 16;

  /// Rows of the cluster's tiles together, and the block's first among them.
  __device__ static int height() { return kTileRows * static_cast<int>(gpu::blocks_of_cluster()); }
  __device__ static int own_row() { return kTileRows * static_cast<int>(gpu::block_in_cluster()); }
  __device__ static unsigned tiles(std::int64_t extent, int side) {
    return (static_cast<unsigned>(extent) + side - 1) / static_cast<unsigned>(side);
  }
  __device__ unsigned across() const { return tiles(p.N, kColumns); }  // of all sections together
  __device__ unsigned down() const { return tiles(p.M, height()); }    // of one expert's weights

  __device__ Work<U> of_weights(unsigned number) const {
    const unsigned expert = number / (down() * across()), tile = number % (down() * across());
    const int row = static_cast<int>(tile % down()) * height() + own_row();
    const int column = static_cast<int>(tile / down()) * kColumns;
    const int first = p.offsets[expert];
    return {p.c + (expert * p.M + row) * p.N + column,
            nullptr,
            static_cast<int>(p.M) - row,
            static_cast<int>(p.N) - column,
            0,
            p.offsets[expert + 1] - first,
            {row, first, 0, 0},
            {column, first, 0, 0}};
  }
  __device__ Work<U> of_expert(unsigned number) const {
    const TileOfExpert tile = find_tile(p.offsets, p.experts, height(), number / across());
    const int row = p.offsets[tile.expert] + static_cast<int>(tile.tile) * height() + own_row();
    return of_rows(row, p.offsets[tile.expert + 1], number % across(), tile.expert % p.matrices);
  }
  __device__ Work<U> of_band(unsigned number) const {
    const unsigned most = kBand / gpu::blocks_of_cluster();  // of the cluster's tiles
    const unsigned band = number / (most * across()), place = number % (most * across());
    const unsigned down = min(most, tiles(p.P, height()) - band * most);
    const int row = static_cast<int>(band * most + place % down) * height() + own_row();
    return of_rows(row, static_cast<int>(p.P), place / down, 0);
  }
  /// The tile of rows from `row` on, of an expert that ends before row `end`, in column `tile`.
  __device__ Work<U> of_rows(int row, int end, unsigned tile, int matrix) const {
    constexpr bool kTransposed = kDirection == Direction::rows_transposed;
    const int column = static_cast<int>(tile) * (kColumns / kSectionsOf<kResult>);
    const auto section = static_cast<int>(p.N) / kSectionsOf<kResult>;
    return {p.c + row * (kResultsOf<kResult> * p.N) + column,
            p.activated == nullptr ? nullptr : p.activated + row * std::int64_t{section} + column,
            end - row,
            section - column,
            section,
            static_cast<int>(p.K),
            {0, row, 0, 0},
            {kTransposed ? 0 : column, kTransposed ? column : 0, matrix, 0}};
  }
};

}  // namespace tessera::cuda::groups
