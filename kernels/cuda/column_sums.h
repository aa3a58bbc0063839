// Sums over the rows of a matrix, one per column, such as the gradients of weights that all rows
// share.
//
// Rows are cut into chunks, a block each. A block adds its rows in registers (ColumnSums) and
// writes one line of partial sums; add_lines adds the lines up. The number of chunks is a function
// of the matrix's shape and dtype, never of the GPU, and every sum has a fixed order: the same bits
// everywhere, without atomics.
#pragma once

#include <initializer_list>

#include "kernels/cuda/rows.h"
#include "kernels/op.h"
#include "runtime/category.h"
#include "runtime/tensor.h"

namespace tessera::gpu {

/// How many rows make a line of partial sums.
struct RowChunks {
  std::int64_t rows;
  std::int64_t count;

  /// At most `most` chunks, of at least `fewest_rows`.
  static RowChunks cut(std::int64_t rows, std::int64_t most, std::int64_t fewest_rows) {
    const std::int64_t even = (rows + most - 1) / most;
    const std::int64_t size = even < fewest_rows ? fewest_rows : even;
    return {size, (rows + size - 1) / size};
  }
};

/// Blocks per multiprocessor of a kernel that keeps `sums` ColumnSums: what registers leave room
/// for.
template <typename Layout, int sums>
constexpr int summing_blocks() {
  constexpr bool kWide = sizeof(typename Layout::T) == 4;
  if (Layout::kElements == 8) return 4;
  if (Layout::kElements == 16) return kWide || sums == 2 ? 2 : 3;
  const int warps = kWide ? 8 : sums == 1 ? 16 : 12;
  return warps * 32 / Layout::kThreads;
}

/// The same as the bound that such a kernel is compiled for.
template <typename Layout, int sums>
inline constexpr int kSummingBlocks = Layout::kAligned ? summing_blocks<Layout, sums>() : 1;

/// As many chunks as an H100 or H200, of 132 multiprocessors, works on at a time. Other GPUs get
/// the same chunks, and the last of their blocks may find them half idle: the order of the sums,
/// and so their bits, are worth more.
template <typename Layout, int sums>
RowChunks chunks_for_summing(std::int64_t rows) {
  return RowChunks::cut(rows, 132 * summing_blocks<Layout, sums>(), /*fewest_rows=*/8);
}

/// Lines of partial sums in workspace memory: a chunk's follow each other, one for each vector of
/// sums. They are padded, so that each begins aligned.
struct PartialLines {
  std::int64_t chunks;
  int per_chunk;
  std::int64_t stride;  // from line to line
  Tensor memory;

  PartialLines(std::int64_t chunks, int per_chunk, std::int64_t columns)
      : chunks(chunks), per_chunk(per_chunk), stride((columns + 7) / 8 * 8) {
    const CategoryScope scope(Category::workspace);
    memory = Tensor::empty({chunks, per_chunk, stride}, DType::f32);
  }
  float* data() const { return memory.data<float>(); }
};

/// sums[i][c] (+)= sum over the chunks of their i-th line's element c, in a fixed order, in one
/// launch. Nothing where sums[i] is undefined.
void add_lines(std::initializer_list<Tensor> sums, const PartialLines& lines,
               Accumulate accumulate);

/// Sums over the rows that a thread has seen, for the columns that it holds of a tile.
template <typename Layout>
struct ColumnSums {
  float values[Layout::kVectors][Layout::kWidth];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) values[i][j] = 0.0f;
    }
  }

  /// Writes the block's sums for the `columns` columns from line[0] on, and perhaps the padding
  /// behind them. The whole block calls it.
  __device__ void store(float* line, std::int64_t columns) const {
    if constexpr (Layout::kTeams == 1) {
      store_own(line, columns);
    } else {
      TESSERA_SHARED(float4, aligned, [Layout::kTeams * Layout::kTile / 4]);
      float* const sums = reinterpret_cast<float*>(aligned);
      __syncthreads();  // the readers of an earlier call are done
      store_own(sums + Layout::team_of_thread() * Layout::kTile, columns);
      __syncthreads();
      for (int c = static_cast<int>(threadIdx.x); c < Layout::kTile && c < columns;
           c += Layout::kThreads) {
        float sum = 0.0f;
        for (int team = 0; team < Layout::kTeams; ++team) sum += sums[team * Layout::kTile + c];
        line[c] = sum;
      }
    }
  }

  /// Where a row has several tiles (and a block is one team) the registers serve one tile after the
  /// other, and the line keeps the sums meanwhile: resume begins with its sums, or with zero at the
  /// first row; pause writes them back.
  __device__ void resume(const float* line, std::int64_t columns, bool first) {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
      const int column = Layout::column(i);
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) {
        values[i][j] = !first && column < columns ? line[column + j] : 0.0f;
      }
    }
  }
  __device__ void pause(float* line, std::int64_t columns) const {
    store_own(line, columns);
  }

 private:
  __device__ void store_own(float* line, std::int64_t columns) const {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
      const int column = Layout::column(i);
      if (column >= columns) continue;
#pragma unroll
      for (int j = 0; j < Layout::kWidth; j += 4) {
        *reinterpret_cast<float4*>(line + column + j) =
            make_float4(values[i][j], values[i][j + 1], values[i][j + 2], values[i][j + 3]);
      }
    }
  }
};

}  // namespace tessera::gpu
