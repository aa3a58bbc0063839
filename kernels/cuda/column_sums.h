// Sums over the rows of a matrix, one per column.
//
// Gradients of weights that all rows share are such sums. Rows are cut into chunks, a block each. A
// block adds its rows in registers (ColumnSums) and writes one line of partial sums. The last blocks
// to finish add the lines (LineSums). The matrix's shape and dtype decide the number of chunks, not
// the GPU, and every sum has a fixed order: the same bits everywhere. Only the blocks that finish are
// counted by an atomic.
#pragma once

#include <initializer_list>

#include "kernels/cuda/last_block.h"
#include "kernels/cuda/rows.h"
#include "kernels/op.h"
#include "runtime/category.h"
#include "runtime/integer.h"
#include "runtime/tensor.h"

namespace tessera::gpu {

/// The cut of a matrix's rows into chunks; each makes a line of partial sums.
struct RowChunks {
  std::int64_t rows;
  std::int64_t count;

  /// At most `most` chunks, of at least `fewest_rows`.
  static RowChunks cut(std::int64_t rows, std::int64_t most, std::int64_t fewest_rows) {
    const std::int64_t even = ceil_div(rows, most);
    const std::int64_t size = even < fewest_rows ? fewest_rows : even;
    return {size, ceil_div(rows, size)};
  }
};

/// Warps that a multiprocessor holds of a kernel that keeps `sums` ColumnSums in registers. A
/// thread with E elements of a tile needs E registers for each of the sums, and two rows next to
/// them: 2 E in f32, E in 16 bits. The more it needs, the fewer warps there is room for:
///
///   elements a thread    f32    16 bits, one sum    16 bits, two sums
///   8                    32     32                  32
///   16                   16     24                  16
///   32                   8      16                  12
template <typename Layout, int sums>
constexpr int summing_warps() {
  constexpr bool kWide = sizeof(typename Layout::T) == 4;
  switch (Layout::kElements) {
    case 8:
      return 32;
    case 16:
      return !kWide && sums == 1 ? 24 : 16;
    default:
      return kWide ? 8 : sums == 1 ? 16 : 12;
  }
}

/// The same as blocks of a multiprocessor.
template <typename Layout, int sums>
constexpr int summing_blocks() {
  return summing_warps<Layout, sums>() * kWarpSize / Layout::kThreads;
}

/// The bound for __launch_bounds__; see kRowBlocks.
template <typename Layout, int sums>
inline constexpr int kSummingBlocks = Layout::kAligned ? summing_blocks<Layout, sums>() : 1;

/// Sums that layer norm's backward keeps in registers. They decide its chunks, and those of a bias's
/// gradient, which are the same.
inline constexpr int kSumsOfLayerNorm = 2;

/// Multiprocessors of an H100 or H200 SXM. If the size of a grid decides the order of
/// sums, it is chosen for these GPUs on every GPU: equal bits everywhere are worth more than a last
/// wave of blocks that fills another GPU.
inline constexpr int kReferenceMultiprocessors = 132;

/// As many chunks as a reference GPU works on at a time.
template <typename Layout, int sums>
RowChunks chunks_for_summing(std::int64_t rows) {
  return RowChunks::cut(rows, kReferenceMultiprocessors * summing_blocks<Layout, sums>(),
                        /*fewest_rows=*/8);
}

/// Lines of partial sums in workspace memory. A chunk's lines follow each other, one for each of
/// its ColumnSums. They are padded, so that each begins aligned.
struct PartialLines {
  std::int64_t chunks;
  int per_chunk;
  std::int64_t stride;  // from line to line
  Tensor memory;

  PartialLines(std::int64_t chunks, int per_chunk, std::int64_t columns)
      : chunks(chunks), per_chunk(per_chunk), stride(round_up(columns, 8)) {
    const CategoryScope scope(Category::workspace);
    memory = Tensor::empty({chunks, per_chunk, stride}, DType::f32);
  }
  float* data() const { return memory.data<float>(); }
};

/// A vector of sums, which the lines' sum overwrites or is added to. An undefined one is not computed.
struct RowSums {
  Tensor sums;
  Accumulate accumulate;
};

/// The same for kernels; null if undefined.
struct SumTarget {
  void* data;
  DType dtype;
  bool accumulate;

  __device__ void add(std::int64_t column, float total) const {
    const auto add_to = [=, adds = accumulate](auto& sum) {
      store(sum, adds ? load(sum) + total : total);
    };
    switch (dtype) {
      case DType::bf16:
        return add_to(static_cast<bfloat16*>(data)[column]);
      case DType::f16:
        return add_to(static_cast<float16*>(data)[column]);
      default:
        return add_to(static_cast<float*>(data)[column]);
    }
  }
};

/// Adds the lines at the end of the kernel that writes them, a chunk for each of its blocks. Blocks
/// are cut into groups, and groups into groups of groups:
///
///   lines     0  1  2 | 3  4  5 | 6  7  8 || 9 10 11 | 12 ...    groups of 3
///             0         3         6          9         12        a group's last block adds its lines
///             0                              9                   the last of three of these adds theirs
///             sums                                               and so on
///
/// "Last" is the last to finish. Every sum has the order of the lines, whichever block that is. The
/// blocks that add are few, and wait for memory: a thread loads all lines of a group at once.
struct LineSums {
  static constexpr int kMost = 3;
  static constexpr unsigned kMostOfGroup = 11;

  SumTarget of[kMost];
  float* lines;
  int per_chunk;
  std::int64_t stride, columns;
  unsigned blocks_of_group;
  unsigned* tickets;  // cuda::tickets: one for each group, of lines and of groups

  /// Called by all threads of every block, after the block has written its lines.
  __device__ void finish() const {
    if (columns == 0) return;
    unsigned ticket = 0;
    std::int64_t to_next = per_chunk * stride;
    for (unsigned place = blockIdx.x, count = gridDim.x;;) {
      const unsigned group = place / blocks_of_group, first = group * blocks_of_group;
      const unsigned size = min(blocks_of_group, count - first);
      if (!is_last_block(tickets + ticket + group, size)) return;
      float* const of_group = lines + first * to_next;
      const unsigned groups = (count + blocks_of_group - 1) / blocks_of_group;
      if (groups == 1) return add_to_targets(of_group, size, to_next);
      for_each_sum(of_group, size, to_next, [&](int line, std::int64_t column, float4 total) {
        *reinterpret_cast<float4*>(of_group + line * stride + column) = total;
      });
      ticket += groups;
      to_next *= blocks_of_group;
      place = group;
      count = groups;
    }
  }

 private:
  __device__ void add_to_targets(const float* first, unsigned count, std::int64_t to_next) const {
    for_each_sum(first, count, to_next, [&](int line, std::int64_t column, float4 total) {
      if (of[line].data == nullptr) return;
      const float totals[] = {total.x, total.y, total.z, total.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (column + j < columns) of[line].add(column + j, totals[j]);
      }
    });
  }
  /// f(line, column, sums of four columns) for `count` chunks' lines, `to_next` apart.
  template <typename F>
  __device__ void for_each_sum(const float* first, unsigned count, std::int64_t to_next,
                               F f) const {
#pragma unroll
    for (int line = 0; line < kMost; ++line) {
      if (line == per_chunk) break;
      for (std::int64_t column = 4 * threadIdx.x; column < columns; column += 4 * blockDim.x) {
        const float* const at = first + line * stride + column;
        float4 values[kMostOfGroup];
#pragma unroll
        for (unsigned i = 0; i < kMostOfGroup; ++i) {
          values[i] = i < count ? *reinterpret_cast<const float4*>(at + i * to_next) : float4{};
        }
        float4 total = values[0];
#pragma unroll
        for (unsigned i = 1; i < kMostOfGroup; ++i) {
          total.x += values[i].x;
          total.y += values[i].y;
          total.z += values[i].z;
          total.w += values[i].w;
        }
        f(line, column, total);
      }
    }
  }
};

/// The arguments of LineSums: targets[i] (+)= the sum over the chunks of their i-th line. Without a
/// target, finish does nothing.
LineSums line_sums(std::initializer_list<RowSums> targets, const PartialLines& lines);

/// The targets of a matrix without rows, for which no kernel is launched.
void sum_no_rows(std::initializer_list<RowSums> targets);

/// Adds four numbers to sums in memory, in one access each way.
__device__ inline void add_four(float4& sums, const float* x) {
  const float4 before = sums;
  sums = make_float4(before.x + x[0], before.y + x[1], before.z + x[2], before.w + x[3]);
}

/// A thread's sums over rows, for the columns that it holds of a tile. As an argument of map and
/// for_each (rows.h) its elements are floats that the function may change.
template <typename Layout>
struct ColumnSums {
  /// The shared memory that store declares.
  static constexpr std::int64_t kSharedBytes =
      Layout::kTeams == 1 ? 0 : Layout::kThreads * Layout::kElements * sizeof(float);

  struct Sums {
    float values[Layout::kWidth];
  };
  Sums vectors[Layout::kVectors];

  __device__ Sums& vector(int i) { return vectors[i]; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) vectors[i].values[j] = 0.0f;
    }
  }

  /// Writes the block's sums for the `columns` columns from line[0] on. May write the padding
  /// behind them. All threads of the block call it.
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

  /// For rows of several tiles (a block is then one team). The registers serve one tile after the
  /// other, and the line keeps the sums of the other tiles. resume loads a tile's sums from the
  /// line, or begins with zero at the first row; pause writes them back.
  __device__ void resume(const float* line, std::int64_t columns, bool first) {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
      const int column = Layout::column(i);
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) {
        vectors[i].values[j] = !first && column < columns ? line[column + j] : 0.0f;
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
      const auto& sums = vectors[i].values;
#pragma unroll
      for (int j = 0; j < Layout::kWidth; j += 4) {
        *reinterpret_cast<float4*>(line + column + j) =
            make_float4(sums[j], sums[j + 1], sums[j + 2], sums[j + 3]);
      }
    }
  }
};

/// Sums as ColumnSums has them, in shared memory: for a kernel whose registers are full. Rows have one
/// tile.
template <typename Layout>
class SharedColumnSums {
 public:
  /// The shared memory that it declares, with that of store.
  static constexpr std::int64_t kSharedBytes =
      Layout::kThreads * Layout::kElements * sizeof(float) + ColumnSums<Layout>::kSharedBytes;

  __device__ SharedColumnSums() {
    TESSERA_SHARED(float4, sums, [Layout::kElements / 4][Layout::kThreads]);
    own_ = &sums[0][threadIdx.x];
  }

  __device__ void clear() const {
#pragma unroll
    for (int i = 0; i < Layout::kElements / 4; ++i) own_[i * Layout::kThreads] = float4{};
  }
  __device__ void add(const RowTile<Layout>& tile) const {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
      const auto vector = tile.vector(i);
#pragma unroll
      for (int j = 0; j < Layout::kWidth; j += 4) add_four(at(i, j), vector.values + j);
    }
  }
  /// As ColumnSums::store.
  __device__ void store(float* line, std::int64_t columns) const {
    ColumnSums<Layout> sums;
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < Layout::kWidth; j += 4) {
        *reinterpret_cast<float4*>(sums.vectors[i].values + j) = at(i, j);
      }
    }
    sums.store(line, columns);
  }

 private:
  __device__ float4& at(int i, int j) const {
    return own_[(i * Layout::kWidth + j) / 4 * Layout::kThreads];
  }

  float4* own_;  // the thread's first four; the next four are kThreads further
};

/// Adds a row's tile to a line that a team has for itself, or begins the line with it.
template <typename Layout>
__device__ void add_to_line(float* line, const RowTile<Layout>& tile, std::int64_t columns,
                            bool begins) {
#pragma unroll
  for (int i = 0; i < Layout::kVectors; ++i) {
    const int column = Layout::column(i);
    if (column >= columns) continue;
    const auto vector = tile.vector(i);
#pragma unroll
    for (int j = 0; j < Layout::kWidth; j += 4) {
      float4& four = *reinterpret_cast<float4*>(line + column + j);
      if (begins) four = float4{};
      add_four(four, vector.values + j);
    }
  }
}

}  // namespace tessera::gpu
