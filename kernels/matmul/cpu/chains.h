// The micro-kernel of vector instructions: a tile of c stays in registers while it walks down the
// depth (Goto, van de Geijn 2008).
//
// Every element of a tile is one chain of fused multiply-adds, s = a[i, k] b[k, j] + s for k = 0, 1,
// ..., which is then added to c, or which begins with c's element. So it does not depend on the
// other rows and columns, on the extents, or on the width of the vectors.
//
// Included by files that are compiled for one instruction set each. S names its vectors:
//
//   Packed, Sum            types of a packed element and of c
//   Vector, SumVector      kLanes of them
//   kRows, kVectors        of a tile
//   kReadsA                may a be the factor itself?
//   kDepthsAhead           b is prefetched so many depths before it is read; 0: never
//   broadcast, load, multiply_add
//
// Without multiply_add, where the compiler has no such instructions, the engine has sizes alone.
#pragma once

#include "kernels/matmul/cpu/panels.h"

namespace tessera::cpu {
namespace {

/// S without its instruction, for T = float or double. Tiles have `rows` rows of `vectors` vectors.
template <typename T, int bytes_of_vector, int rows, int vectors>
struct VectorTile {
  using Packed = T;
  using Sum = T;
  static constexpr int kLanes = bytes_of_vector / static_cast<int>(sizeof(T));
  static constexpr int kRows = rows, kVectors = vectors;
  static constexpr bool kReadsA = true;
  static constexpr int kDepthsAhead = bytes_of_vector == 64 ? 8 : 0;
  using Vector = typename VectorOf<T, kLanes>::type;
  using SumVector = Vector;

  TESSERA_INLINE static Vector load(const T* from) {
    Vector to;
    std::memcpy(&to, from, sizeof(to));
    return to;
  }
  TESSERA_INLINE static Vector broadcast(T value) { return value - Vector{}; }
};

/// Bytes of a tile's vector v of a row of c, which has `columns` columns.
template <typename S>
TESSERA_INLINE std::size_t bytes_of_vector(std::int64_t columns, int v) {
  return sizeof(typename S::Sum) *
         static_cast<std::size_t>(std::clamp<std::int64_t>(columns - v * S::kLanes, 0, S::kLanes));
}

/// Sums that begin with c's elements.
template <typename S, int kRows, int kVectors>
TESSERA_INLINE void load(typename S::SumVector (&sum)[kRows][kVectors], const typename S::Sum* c,
                         std::int64_t c_row, std::int64_t columns) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      // A copy of some lanes into sum itself would keep all of sum in memory.
      typename S::SumVector before{};
      std::memcpy(&before, c + i * c_row + v * S::kLanes, bytes_of_vector<S>(columns, v));
      sum[i][v] = before;
    }
  }
}

/// The first `columns` columns of a tile: c = sum or c += sum.
template <typename S, int kRows, int kVectors>
TESSERA_INLINE void store(typename S::Sum* c, std::int64_t c_row,
                          const typename S::SumVector (&sum)[kRows][kVectors], std::int64_t columns,
                          bool accumulate) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      typename S::Sum* const to = c + i * c_row + v * S::kLanes;
      const std::size_t bytes = bytes_of_vector<S>(columns, v);
      typename S::SumVector before{};
      if (accumulate) {
        std::memcpy(&before, to, bytes);
        before = before + sum[i][v];
      } else {
        before = sum[i][v];
      }
      std::memcpy(to, &before, bytes);
    }
  }
}

/// How a tile's factors lie in memory.
enum class Layout {
  panels,   // both in panels of whole tiles: all distances are constants
  columns,  // a's depths lie tile.a_depth apart
  rows,     // a's rows lie tile.a_row apart
};

/// Adds the products of one depth, or pair of depths. The elements of a's rows lie `a_row` apart.
template <typename S, int kRows, int kVectors>
TESSERA_INLINE void add_depth(typename S::SumVector (&sum)[kRows][kVectors],
                              const typename S::Packed* a, std::int64_t a_row,
                              const typename S::Packed* b) {
  typename S::Vector from[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) from[v] = S::load(b + v * S::kLanes);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const typename S::Vector factor = S::broadcast(a[i * a_row]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) S::multiply_add(sum[i][v], factor, from[v]);
  }
}

/// Asks for b's rows of two depths that come S::kDepthsAhead later. The CPU foresees a stream from the
/// second-level cache, but too late.
template <typename S, int kVectors>
TESSERA_INLINE void prefetch_depths(const typename S::Packed* b, std::int64_t b_stride) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(typename S::Packed));
#pragma GCC unroll 2
  for (int k = S::kDepthsAhead; k < S::kDepthsAhead + 2; ++k) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors * S::kLanes; j += kLine) {
      __builtin_prefetch(b + k * b_stride + j);
    }
  }
}

template <typename S, int kRows, int kVectors, Layout kLayout>
TESSERA_INLINE void multiply_tile(const Tile& tile) {
  typename S::SumVector sum[kRows][kVectors] = {};
  const auto* a = static_cast<const typename S::Packed*>(tile.a);
  const auto* b = static_cast<const typename S::Packed*>(tile.b);
  auto* const c = static_cast<typename S::Sum*>(tile.c);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(c + i * tile.c_row + v * S::kLanes, 1);
  }
  constexpr std::int64_t kColumns = kVectors * S::kLanes;
  // Whole vectors are copied by one instruction each, other ones by a call.
  const bool is_whole = tile.columns == kColumns;
  if (tile.continues) {
    if (is_whole) {
      load<S, kRows, kVectors>(sum, c, tile.c_row, kColumns);
    } else {
      load<S, kRows, kVectors>(sum, c, tile.c_row, tile.columns);
    }
  }
  const std::int64_t depth =
      (tile.depth + kDepthOf<typename S::Packed> - 1) / kDepthOf<typename S::Packed>;
  const std::int64_t a_row = kLayout == Layout::rows ? tile.a_row : 1;
  const std::int64_t a_depth = kLayout == Layout::rows      ? 1
                               : kLayout == Layout::columns ? tile.a_depth
                                                            : kRows;
  const std::int64_t b_stride = kLayout == Layout::panels ? kColumns : tile.b_stride;
  std::int64_t k = 0;
  if constexpr (kLayout != Layout::columns) {
    // Two depths a turn: the loads of the second come among the sums of the first.
    for (; k + 1 < depth; k += 2, a += 2 * a_depth, b += 2 * b_stride) {
      if constexpr (S::kDepthsAhead > 0) prefetch_depths<S, kVectors>(b, b_stride);
      add_depth<S, kRows, kVectors>(sum, a, a_row, b);
      add_depth<S, kRows, kVectors>(sum, a + a_depth, a_row, b + b_stride);
    }
  }
  for (; k < depth; ++k, a += a_depth, b += b_stride) {
    add_depth<S, kRows, kVectors>(sum, a, a_row, b);
  }
  if (is_whole) {
    store<S, kRows, kVectors>(c, tile.c_row, sum, kColumns, tile.accumulate);
  } else {
    store<S, kRows, kVectors>(c, tile.c_row, sum, tile.columns, tile.accumulate);
  }
}

template <typename S, int kRows, int kVectors>
void multiply_vectors(const Tile& tile) {
  if (tile.columns > (kVectors - 1) * S::kLanes) {
    if constexpr (S::kReadsA) {
      if (tile.a_row != 0) return multiply_tile<S, kRows, kVectors, Layout::rows>(tile);
    }
    if constexpr (kRows == S::kRows && kVectors == S::kVectors) {
      if (tile.a_depth == kRows && tile.b_stride == kVectors * S::kLanes) {
        return multiply_tile<S, kRows, kVectors, Layout::panels>(tile);
      }
    }
    multiply_tile<S, kRows, kVectors, Layout::columns>(tile);
  } else if constexpr (kVectors > 1) {
    multiply_vectors<S, kRows, kVectors - 1>(tile);
  }
}

/// tile.rows <= kRows.
template <typename S, int kRows>
void multiply_rows(const Tile& tile) {
  if (tile.rows == kRows) {
    multiply_vectors<S, kRows, S::kVectors>(tile);
  } else if constexpr (kRows > 1) {
    multiply_rows<S, kRows - 1>(tile);
  }
}

inline constexpr std::int64_t kMostChain = 320;

template <typename S>
constexpr decltype(Engine::multiply) multiply_of() {
  if constexpr (requires { &S::multiply_add; }) {
    return multiply_rows<S, S::kRows>;
  } else {
    return nullptr;
  }
}

/// The engine of S for factors of type Source.
template <typename S, typename Source>
inline constexpr Engine kChains{
    .rows = S::kRows,
    .columns = S::kVectors* S::kLanes,
    .depth_step = kDepthOf<typename S::Packed>,
    .most_depth = kMostChain,
    .element_size = static_cast<int>(sizeof(typename S::Packed) / kDepthOf<typename S::Packed>),
    .reads_a = S::kReadsA&& std::is_same_v<typename S::Packed, Source>,
    .reads_b = std::is_same_v<typename S::Packed, Source>,
    .adds_tiles = true,
    .pack_a = pack<typename S::Packed, S::kRows, S::kLanes, Source>,
    .pack_b = pack<typename S::Packed, S::kVectors * S::kLanes, S::kLanes, Source>,
    .multiply = multiply_of<S>()};

/// For files with an S of float and double.
template <template <typename> typename S>
const Engine* chains_for(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return &kChains<S<float>, float>;
    case DType::f64:
      return &kChains<S<double>, double>;
    case DType::bf16:
      return &kChains<S<float>, bfloat16>;
    case DType::f16:
      return &kChains<S<float>, float16>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tessera::cpu
