// Rows of a matrix, each kept in the registers of a team of threads.
//
// A team is a warp, several to a block, or a whole block for longer rows. It takes the row in tiles
// of kTeam * kElements columns: nearly always in one tile, so that the row is read from memory
// once. Of a tile, thread t holds the 16-byte vectors t, t + kTeam, t + 2 kTeam, ...
//
//   768 columns of bf16, a warp, 32 elements (4 vectors of 8) a thread:
//   column  0..7  8..15 ... 248..255  256..263 ... 504..511  512..519 ... 760..767  -
//   thread  0     1     ... 31        0        ... 31        0        ... 31        0 ... 31
//   vector  0     0     ... 0         1        ... 1         2        ... 2         3: reads as 0
//
// Which columns a thread holds depends on the row's length and the dtype alone. Rows that are not
// aligned are read one element at a time into the same places, so results have the same bits
// wherever the tensors lie.
#pragma once

#include <initializer_list>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"

namespace tessera::gpu {

template <typename Stored, int team, int elements, bool aligned>
struct RowLayout {
  using T = Stored;
  static constexpr int kTeam = team;
  static constexpr int kElements = elements;
  static constexpr bool kAligned = aligned;
  static constexpr int kWidth = Vector<T>::kSize;
  static constexpr int kVectors = kElements / kWidth;
  static constexpr int kTile = kTeam * kElements;
  /// Threads of a block, and rows that it works on at a time. Where threads need many registers,
  /// smaller blocks share out a multiprocessor's more evenly.
  static constexpr int kThreads = kTeam > 32 ? kTeam : kElements == 32 ? 128 : 256;
  static constexpr int kTeams = kThreads / kTeam;

  __device__ static int team_of_thread() { return static_cast<int>(threadIdx.x) / kTeam; }
  /// First column, in its tile, of the thread's i-th vector.
  __device__ static int column(int i) {
    return (i * kTeam + static_cast<int>(threadIdx.x) % kTeam) * kWidth;
  }
};

/// Can the rows, of `columns` elements, of all these tensors be read in 16-byte vectors? (Undefined
/// ones, of arguments that are absent, do not matter.)
template <typename T>
bool rows_aligned(std::int64_t columns, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (!is_vectorizable(pointer<T>(tensor), columns)) return false;
  }
  return true;
}

/// Blocks per multiprocessor that a kernel which keeps a row or two is compiled for: the compiler
/// then keeps rows as they are stored. (Reading element by element takes many registers.)
template <typename Layout>
inline constexpr int kRowBlocks = !Layout::kAligned                 ? 1
                                  : Layout::kElements < 32          ? 768 / Layout::kThreads
                                  : sizeof(typename Layout::T) == 2 ? 512 / Layout::kThreads
                                                                    : 256 / Layout::kThreads;

/// Calls f(std::true_type{}) if the tensors' rows can be read in vectors, f(std::false_type{}) if
/// not.
template <typename T, typename F>
void visit_aligned(std::int64_t columns, std::initializer_list<Tensor> tensors, F&& f) {
  if (rows_aligned<T>(columns, tensors)) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

/// Calls f(layout) with the layout of rows of `columns` elements of `dtype` for kernels that take a
/// row once. Four vectors a thread, so that with few threads and short barriers much of memory is
/// asked for at a time: 64 bytes of each of the 640 threads that registers leave room for.
/// Undefined tensors, of arguments that are absent, do not matter.
template <typename F>
void visit_row_layout(DType dtype, std::int64_t columns, std::initializer_list<Tensor> tensors,
                      F&& f) {
  visit(dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kWidth = Vector<T>::kSize;
    visit_aligned<T>(columns, tensors, [&](auto aligned) {
      constexpr bool kAligned = decltype(aligned)::value;
      if (columns <= 32 * kWidth) return f(RowLayout<T, 32, kWidth, kAligned>{});
      if (columns <= 32 * 2 * kWidth) return f(RowLayout<T, 32, 2 * kWidth, kAligned>{});
      if (columns <= 32 * 4 * kWidth) return f(RowLayout<T, 32, 4 * kWidth, kAligned>{});
      if (columns <= 64 * 4 * kWidth) return f(RowLayout<T, 64, 4 * kWidth, kAligned>{});
      if (columns <= 128 * 4 * kWidth) return f(RowLayout<T, 128, 4 * kWidth, kAligned>{});
      if (columns <= 256 * 4 * kWidth) return f(RowLayout<T, 256, 4 * kWidth, kAligned>{});
      return f(RowLayout<T, 256, 32, kAligned>{});
    });
  });
}

/// The same for kernels that keep sums for every column in registers: few elements a thread.
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

/// Calls f(layout) with the layout for a stripe of these tensors' rows: a warp wide, one vector a
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

/// What one thread holds of a tile, as stored: a 16-bit row takes half the registers of its floats.
template <typename Layout>
struct RowTile {
  using T = typename Layout::T;
  uint4 raw[Layout::kVectors];

  /// The tile that begins at `first` and has `columns` columns left in its row; behind them zero.
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

  /// The thread's i-th vector.
  __device__ Vector<T> get(int i) const {
    return Vector<T>::unpack(raw[i]);
  }
  /// Rounds to T.
  __device__ void set(int i, const Vector<T>& values) {
    raw[i] = values.pack();
  }

  /// Adds another row's tile, element by element, rounded to T.
  __device__ void add(const RowTile& other) {
#pragma unroll
    for (int i = 0; i < Layout::kVectors; ++i) {
      Vector<T> sum = get(i);
      const Vector<T> addend = other.get(i);
      // Never fused with the product that gave an element: the bits are those of the operation add.
#pragma unroll
      for (int j = 0; j < Layout::kWidth; ++j) {
        sum.values[j] = __fadd_rn(sum.values[j], addend.values[j]);
      }
      set(i, sum);
    }
  }
};

/// Asks for row n of some matrices (null ones do not matter) to be brought to the second-level
/// cache, while the team works on another row: one instruction of one thread, and no registers.
/// Nothing before sm_90, or where rows are not aligned.
template <typename Layout>
__device__ void prefetch_rows(std::initializer_list<const typename Layout::T*> matrices,
                              std::int64_t n, std::int64_t columns) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (Layout::kAligned) {
    if (threadIdx.x % Layout::kTeam != 0) return;
    for (const typename Layout::T* matrix : matrices) {
      if (matrix == nullptr) continue;
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                       __cvta_generic_to_global(matrix + n * columns)),
                   "r"(static_cast<unsigned>(columns * sizeof(*matrix))));
    }
  }
#else
  static_cast<void>(matrices), static_cast<void>(n), static_cast<void>(columns);
#endif
}

/// Each of the values summed over the team's threads, in a fixed order; every thread gets the sums.
template <typename Layout, int count>
__device__ void team_sum(float (&values)[count]) {
#pragma unroll
  for (int v = 0; v < count; ++v) values[v] = warp_reduce<Sum>(values[v]);
  if constexpr (Layout::kTeam > 32) {
    constexpr int kWarps = Layout::kTeam / 32;
    TESSERA_SHARED(float, partial, [count][kWarps]);
    __syncthreads();  // the readers of an earlier call are done
    if (threadIdx.x % 32 == 0) {
      for (int v = 0; v < count; ++v) partial[v][threadIdx.x / 32] = values[v];
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
