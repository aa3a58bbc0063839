// Rows of a matrix, each kept in the registers of a team of threads.
//
// A team is a warp or a part of one, several to a block, or a whole block for longer rows. It takes
// the row in tiles of kTeam * kElements columns. Nearly every row fits in one tile, so that it is
// read from memory once. Thread t of the team holds the tile's 16-byte vectors t, t + kTeam,
// t + 2 kTeam, ...
//
//   768 columns of bf16, a warp, 32 elements (4 vectors of 8) a thread:
//   column  0..7  8..15 ... 248..255  256..263 ... 504..511  512..519 ... 760..767  -
//   thread  0     1     ... 31        0        ... 31        0        ... 31        0 ... 31
//   vector  0     0     ... 0         1        ... 1         2        ... 2         3: reads as 0
//
// The row's length and the dtype alone decide which columns a thread holds. Rows that are not
// aligned are read one element at a time into the same places, so the bits of a result do not
// depend on where the tensors lie.
//
// A kernel over rows reads as its formula:
//
//   RowTile<Layout> x, weight;
//   x.load(...), weight.load(...);
//   map(x, [=](float x, float w) { return x * rstd * w; }, x, weight);     // x = x * rstd * weight
//   for_each([&](float x) { squares += x * x; }, x);
#pragma once

#include <initializer_list>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"

namespace tessera::gpu {

inline constexpr int kWarpSize = 32;

/// How a team holds rows of elements `Stored`: `elements` of a tile in each of its `team` threads.
template <typename Stored, int team, int elements, bool aligned>
struct RowLayout {
  using T = Stored;
  static constexpr int kTeam = team;
  static constexpr int kElements = elements;
  static constexpr bool kAligned = aligned;
  static constexpr int kWidth = Vector<T>::kSize;
  static constexpr int kVectors = kElements / kWidth;
  static constexpr int kTile = kTeam * kElements;
  /// Threads of a block. A team of several warps is a block. Otherwise a block has 8 warps, or 4
  /// where threads need many registers: smaller blocks divide a multiprocessor's more evenly.
  static constexpr int kThreads = kTeam > kWarpSize ? kTeam : kElements == 32 ? 128 : 256;
  /// Teams of a block: rows that it works on at a time.
  static constexpr int kTeams = kThreads / kTeam;

  __device__ static int team_of_thread() { return static_cast<int>(threadIdx.x) / kTeam; }
  __device__ static bool is_first_of_team() { return threadIdx.x % kTeam == 0; }
  /// First column, in its tile, of the thread's i-th vector.
  __device__ static int column(int i) {
    return (i * kTeam + static_cast<int>(threadIdx.x) % kTeam) * kWidth;
  }
};

// ---- Which layout a kernel takes, and how many of its blocks share a multiprocessor
//
// __launch_bounds__(threads, blocks) makes the compiler keep a thread within 65,536 / (threads *
// blocks) registers, the multiprocessor's share. More resident threads ask for more memory at a
// time; more registers hold longer rows. The numbers below balance the two.

/// Threads that a multiprocessor holds of a kernel that keeps a row or two in registers.
///
///   elements a thread    registers of a row    resident threads    registers a thread
///   up to 16             8 or 16               768                 80
///   32 of 16 bits        16                    512                 128
///   32 of f32            32                    256                 255
///
/// The bound also makes the compiler keep rows as they are stored, instead of as floats.
template <typename Layout>
constexpr int row_threads() {
  if (Layout::kElements < 32) return 768;
  return sizeof(typename Layout::T) == 2 ? 512 : 256;
}

/// The same as blocks, for __launch_bounds__. Rows that are not aligned are read element by
/// element, which takes many registers: no bound.
template <typename Layout>
inline constexpr int kRowBlocks = Layout::kAligned ? row_threads<Layout>() / Layout::kThreads : 1;

/// Whether all rows of `columns` elements of these tensors can be read in 16-byte vectors.
/// Undefined tensors (arguments that are absent) are skipped.
template <typename T>
bool rows_aligned(std::int64_t columns, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (!is_vectorizable(pointer<T>(tensor), columns)) return false;
  }
  return true;
}

/// Calls f(std::true_type{}) if the tensors' rows can be read in vectors, otherwise
/// f(std::false_type{}).
template <typename T, typename F>
void visit_aligned(std::int64_t columns, std::initializer_list<Tensor> tensors, F&& f) {
  if (rows_aligned<T>(columns, tensors)) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

/// Calls f(layout) with the layout of rows of `columns` elements of `dtype`, for kernels that take
/// a row once: the first of this list with a tile that holds a row.
///
///   team of threads    vectors a thread    columns in 16 bits      columns in f32
///   32                 1, 2, 4             256, 512, 1,024         128, 256, 512
///   64, 128, 256       4                   2,048, 4,096, 8,192     1,024, 2,048, 4,096
///   256                32 elements         any: several tiles      8,192; several tiles
///
/// Four vectors a thread keep teams small and barriers short, and still ask for much memory at a
/// time: 64 bytes for each of some 640 threads, which registers leave room for.
template <typename F>
void visit_row_layout(DType dtype, std::int64_t columns, std::initializer_list<Tensor> tensors,
                      F&& f) {
  visit(dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kWidth = Vector<T>::kSize;
    constexpr int kMost = 4 * kWidth;
    visit_aligned<T>(columns, tensors, [&](auto aligned) {
      constexpr bool kAligned = decltype(aligned)::value;
      if (columns <= 32 * kWidth) return f(RowLayout<T, 32, kWidth, kAligned>{});
      if (columns <= 32 * 2 * kWidth) return f(RowLayout<T, 32, 2 * kWidth, kAligned>{});
      if (columns <= 32 * kMost) return f(RowLayout<T, 32, kMost, kAligned>{});
      if (columns <= 64 * kMost) return f(RowLayout<T, 64, kMost, kAligned>{});
      if (columns <= 128 * kMost) return f(RowLayout<T, 128, kMost, kAligned>{});
      if (columns <= 256 * kMost) return f(RowLayout<T, 256, kMost, kAligned>{});
      return f(RowLayout<T, 256, 32, kAligned>{});
    });
  });
}

/// The same for kernels that keep a sum per column in registers (column_sums.h). Elements a thread,
/// not vectors, set the need for registers, so the list is the same for all dtypes:
///
///   team of threads    elements a thread    columns
///   32                 8, 16, 32            256, 512, 1,024
///   256                8, 16, 32            2,048, 4,096, any: several tiles above 8,192
template <typename F>
void visit_summing_layout(DType dtype, std::int64_t columns, std::initializer_list<Tensor> tensors,
                          F&& f) {
  visit(dtype, [&](auto type) {
    using T = decltype(type);
    visit_aligned<T>(columns, tensors, [&](auto aligned) {
      constexpr bool kAligned = decltype(aligned)::value;
      if (columns <= 32 * 8) return f(RowLayout<T, 32, 8, kAligned>{});
      if (columns <= 32 * 16) return f(RowLayout<T, 32, 16, kAligned>{});
      if (columns <= 32 * 32) return f(RowLayout<T, 32, 32, kAligned>{});
      if (columns <= 256 * 8) return f(RowLayout<T, 256, 8, kAligned>{});
      if (columns <= 256 * 16) return f(RowLayout<T, 256, 16, kAligned>{});
      return f(RowLayout<T, 256, 32, kAligned>{});
    });
  });
}

/// Calls f(layout) with the layout of a stripe of these tensors' rows: a warp wide, one vector a
/// thread.
template <typename F>
void visit_stripe_layout(DType dtype, std::int64_t columns, std::initializer_list<Tensor> tensors,
                         F&& f) {
  visit(dtype, [&](auto type) {
    using T = decltype(type);
    visit_aligned<T>(columns, tensors, [&](auto aligned) {
      f(RowLayout<T, 32, Vector<T>::kSize, decltype(aligned)::value>{});
    });
  });
}

// ---- Tiles

/// A thread's part of a tile, as stored: a 16-bit row takes half the registers of its floats.
template <typename Layout>
struct RowTile {
  using T = typename Layout::T;
  uint4 raw[Layout::kVectors];

  /// Loads the tile that begins at `first` in a row with `columns` columns left. Columns behind the
  /// row's end read as 0.
  __device__ void load(const T* first, std::int64_t columns) {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) raw[i] = uint4{0, 0, 0, 0};
    if constexpr (Layout::kAligned) {
#pragma unroll
      for (int i = 0; i < Layout::kVectors; ++i) {
        const int column = Layout::column(i);
        if (column < columns) raw[i] = *reinterpret_cast<const uint4*>(first + column);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Layout::kVectors; ++i) {
        const int column = Layout::column(i);
        T elements[Layout::kWidth];
#pragma unroll
        for (int j = 0; j < Layout::kWidth; ++j) {
          elements[j] = column + j < columns ? first[column + j] : T{};
        }
        memcpy(&raw[i], elements, 16);
      }
    }
  }

  __device__ void store(T* first, std::int64_t columns) const {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
      const int column = Layout::column(i);
      if constexpr (Layout::kAligned) {
        if (column < columns) *reinterpret_cast<uint4*>(first + column) = raw[i];
        continue;
      }
      T elements[Layout::kWidth];
      memcpy(static_cast<void*>(elements), &raw[i], 16);
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) {
        if (column + j < columns) first[column + j] = elements[j];
      }
    }
  }

  /// The thread's i-th vector, as floats.
  __device__ Vector<T> vector(int i) const {
    return Vector<T>::unpack(raw[i]);
  }
  /// Rounds to T.
  __device__ void set(int i, const Vector<T>& values) {
    raw[i] = values.pack();
  }

  /// Adds another row's tile, element by element, rounded to T.
  __device__ void add(const RowTile& other);
};

/// Calls f(column, x...) for the thread's columns of some tiles, in order; f may change the
/// elements of ColumnSums.
template <typename Layout, typename F, typename... Tiles>
__device__ void for_each_column(F f, Tiles&&... tiles) {
#pragma unroll
  for (int i = 0; i < Layout::kVectors; ++i) {
    const auto of_vectors = [&](auto&&... vectors) {
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) f(Layout::column(i) + j, vectors.values[j]...);
    };
    of_vectors(tiles.vector(i)...);
  }
}

/// Calls f(x...) for the thread's columns of some tiles, in order.
template <typename F, typename Layout, typename... Tiles>
__device__ void for_each(F f, const RowTile<Layout>& first, Tiles&&... others) {
  for_each_column<Layout>([&](int, auto&... x) { f(x...); }, first, others...);
}

/// The sum of the thread's elements of a tile.
template <typename Layout>
__device__ float sum(const RowTile<Layout>& tile) {
  float total = 0.0f;
  for_each([&](float x) { total += x; }, tile);
  return total;
}

/// result = f(x...) column by column, rounded to T. `result` may be one of the tiles.
template <typename Layout, typename F, typename... Tiles>
__device__ void map(RowTile<Layout>& result, F f, Tiles&&... tiles) {
#pragma unroll
  for (int i = 0; i < Layout::kVectors; ++i) {
    Vector<typename Layout::T> values;
    const auto of_vectors = [&](auto&&... vectors) {
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) values.values[j] = f(vectors.values[j]...);
    };
    of_vectors(tiles.vector(i)...);
    result.set(i, values);
  }
}

template <typename Layout>
__device__ void RowTile<Layout>::add(const RowTile& other) {
  // An explicit addition is never fused with the product that gave an element: the bits are those
  // of the operation add.
  map(
      *this, [](float x, float y) { return __fadd_rn(x, y); }, *this, other);
}

/// Sums each of the values over the team's threads, in a fixed order. Every thread gets the sums. Teams
/// that share a warp call it together.
template <typename Layout, int count>
__device__ void team_sum(float (&values)[count]) {
#pragma unroll
  for (int v = 0; v < count; ++v) {
    values[v] = warp_reduce<Sum>(values[v], Layout::kTeam < kWarpSize ? Layout::kTeam : kWarpSize);
  }
  if constexpr (Layout::kTeam > kWarpSize) {
    constexpr int kWarps = Layout::kTeam / kWarpSize;
    TESSERA_SHARED(float, partial, [count][kWarps]);
    __syncthreads();  // the readers of an earlier call are done
    if (threadIdx.x % kWarpSize == 0) {
      for (int v = 0; v < count; ++v) partial[v][threadIdx.x / kWarpSize] = values[v];
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < count; ++v) {
      values[v] = partial[v][0];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) values[v] += partial[v][warp];
    }
  }
}

template <typename Layout>
__device__ float team_sum(float value) {
  float values[1] = {value};
  team_sum<Layout>(values);
  return values[0];
}

}  // namespace tessera::gpu
