#include "kernels/matmul/in_order.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::cpu {
namespace {

// Everything below is inlined into the functions at the end, each of which is compiled for other
// vectors.
#define TESSERA_INLINE [[gnu::always_inline]] inline

template <typename T, int kBytes>
struct VectorType {
  typedef T type __attribute__((vector_size(kBytes)));
};

/// How many rows and vectors of c the registers hold next to the operands: 24 of 32 registers with
/// vectors of 64 bytes, 12 of 16 otherwise.
template <typename T, int kBytes>
struct Shape {
  using Vector = typename VectorType<T, kBytes>::type;
  static constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));
  static constexpr int kVectors = kBytes == 64 ? 4 : 2;
  static constexpr int kRows = 6;
  static constexpr int kColumns = kVectors * kLanes;
};

/// So few rows use a strip of b too seldom to copy it first.
constexpr std::int64_t kFewRows = 24;
/// How far ahead a strip's rows are asked for.
constexpr std::int64_t kRowsAhead = 8;

template <typename Vector, typename T>
TESSERA_INLINE void load(Vector& to, const T* from) {
  std::memcpy(&to, from, sizeof(Vector));
}

/// The lanes of two vectors in turn: a[first], b[first], a[first + 1], ...
template <int kFirst, typename Vector, int... kLane>
TESSERA_INLINE void interleave(Vector& to, const Vector& a, const Vector& b,
                               std::integer_sequence<int, kLane...>) {
  constexpr int kLanes = sizeof...(kLane);
  to = __builtin_shufflevector(a, b, (kFirst + kLane / 2 + kLane % 2 * kLanes)...);
}

/// Transposes a square of vectors: log2(lanes) perfect shuffles of its rows.
template <typename Vector, int kLanes>
TESSERA_INLINE void transpose(Vector (&rows)[kLanes]) {
  constexpr std::make_integer_sequence<int, kLanes> kSequence;
#pragma GCC unroll 4
  for (int stage = 1; stage < kLanes; stage *= 2) {
    Vector next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      interleave<0>(next[2 * i], rows[i], rows[i + kLanes / 2], kSequence);
      interleave<kLanes / 2>(next[2 * i + 1], rows[i], rows[i + kLanes / 2], kSequence);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

/// Asks for columns [first, first + count) of row k of b. Rows often lie in pages of their own, which
/// the CPU does not foresee.
template <typename T>
TESSERA_INLINE void prefetch_row(const Piece<T>& p, std::int64_t k, std::int64_t first,
                                 std::int64_t count) {
  if (k >= p.depth) return;
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const T* const row = p.b + k * p.b_stride + first;
  for (std::int64_t j = 0; j < count; j += kLine) __builtin_prefetch(row + j);
}

/// Columns [first, first + count) of b, in rows of `width` elements with zeros behind the last.
template <typename S, typename T>
TESSERA_INLINE void pack(T* packed, std::int64_t width, const Piece<T>& p, std::int64_t first,
                         std::int64_t count) {
  if (!p.b_transposed) {
    for (std::int64_t k = 0; k < p.depth; ++k) {
      T* const to = packed + k * width;
      prefetch_row(p, k + kRowsAhead, first, count);
      std::copy_n(p.b + k * p.b_stride + first, count, to);
      std::fill(to + count, to + width, T{0});
    }
    return;
  }
  if (count < width) std::fill_n(packed, p.depth * width, T{0});
  const T* const b = p.b + first * p.b_stride;
  const std::int64_t square_columns = count / S::kLanes * S::kLanes;
  const std::int64_t square_depth = p.depth / S::kLanes * S::kLanes;
  for (std::int64_t j = 0; j < square_columns; j += S::kLanes) {
    for (std::int64_t k = 0; k < square_depth; k += S::kLanes) {
      typename S::Vector rows[S::kLanes];
      for (int i = 0; i < S::kLanes; ++i) {
        const T* const from = b + (j + i) * p.b_stride + k;
        load(rows[i], from);
        // The next squares' rows: too many streams for the CPU to foresee.
        if (j + S::kLanes < square_columns) __builtin_prefetch(from + S::kLanes * p.b_stride);
      }
      transpose(rows);
      for (int i = 0; i < S::kLanes; ++i) {
        std::memcpy(packed + (k + i) * width + j, &rows[i], sizeof(rows[i]));
      }
    }
  }
  for (std::int64_t j = 0; j < count; ++j) {
    for (std::int64_t k = j < square_columns ? square_depth : 0; k < p.depth; ++k) {
      packed[k * width + j] = b[j * p.b_stride + k];
    }
  }
}

/// c (+)= sum, for the first `columns` of its columns.
template <int kRows, int kVectors, typename Vector, typename T>
TESSERA_INLINE void add(T* c, std::int64_t c_row, const Vector (&sum)[kRows][kVectors],
                        std::int64_t columns, bool accumulate) {
  constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(T);
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      T* const to = c + i * c_row + v * kLanes;
      const auto bytes = sizeof(T) * std::clamp<std::int64_t>(columns - v * kLanes, 0, kLanes);
      Vector before{};
      if (accumulate) std::memcpy(&before, to, bytes);
      const Vector after = before + sum[i][v];
      std::memcpy(to, &after, bytes);
    }
  }
}

/// kRows rows of a strip of c. Row k of b begins at b[k * b_row].
template <typename S, int kRows, int kVectors, typename T>
TESSERA_INLINE void multiply_rows(const Piece<T>& p, std::int64_t row, std::int64_t column,
                                  const T* b, std::int64_t b_row, std::int64_t columns) {
  using Vector = typename S::Vector;
  Vector sum[kRows][kVectors] = {};
  const T* a = p.a + row * p.a_row;
  for (std::int64_t k = 0; k < p.depth; ++k, ++a, b += b_row) {
    Vector from[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) load(from[v], b + v * S::kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const T factor = a[i * p.a_row];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] += factor * from[v];
    }
  }
  T* const c = p.c + row * p.c_row + column;
  if (columns == kVectors * S::kLanes) {
    add(c, p.c_row, sum, kVectors * S::kLanes, p.accumulate);
  } else {
    add(c, p.c_row, sum, columns, p.accumulate);
  }
}

/// The last `rows` <= kRows rows.
template <typename S, int kRows, int kVectors, typename T>
TESSERA_INLINE void multiply_last_rows(const Piece<T>& p, std::int64_t column, const T* b,
                                       std::int64_t b_row, std::int64_t columns,
                                       std::int64_t rows) {
  if (rows == kRows) {
    multiply_rows<S, kRows, kVectors>(p, p.rows - rows, column, b, b_row, columns);
  } else if constexpr (kRows > 1) {
    multiply_last_rows<S, kRows - 1, kVectors>(p, column, b, b_row, columns, rows);
  }
}

/// All rows of a strip of `vectors` <= kVectors vectors of columns.
template <typename S, int kVectors, typename T>
TESSERA_INLINE void multiply_strip(const Piece<T>& p, std::int64_t column, const T* b,
                                   std::int64_t b_row, std::int64_t columns) {
  if (columns > (kVectors - 1) * S::kLanes) {
    const std::int64_t whole = p.rows / S::kRows * S::kRows;
    for (std::int64_t row = 0; row < whole; row += S::kRows) {
      multiply_rows<S, S::kRows, kVectors>(p, row, column, b, b_row, columns);
    }
    multiply_last_rows<S, S::kRows - 1, kVectors>(p, column, b, b_row, columns, p.rows - whole);
  } else if constexpr (kVectors > 1) {
    multiply_strip<S, kVectors - 1>(p, column, b, b_row, columns);
  }
}

template <int kBytes, typename T>
TESSERA_INLINE void multiply_with_vectors(const Piece<T>& p) {
  using S = Shape<T, kBytes>;
  alignas(64) T packed[kMostDepth * S::kColumns];
  for (std::int64_t column = 0; column < p.columns; column += S::kColumns) {
    const std::int64_t columns = std::min<std::int64_t>(S::kColumns, p.columns - column);
    const std::int64_t width = (columns + S::kLanes - 1) / S::kLanes * S::kLanes;
    if (!p.b_transposed && columns == width && p.rows <= kFewRows) {
      multiply_strip<S, S::kVectors>(p, column, p.b + column, p.b_stride, columns);
    } else {
      pack<S>(packed, width, p, column, columns);
      multiply_strip<S, S::kVectors>(p, column, packed, width, columns);
    }
  }
}

#if defined(__x86_64__)
template <typename T>
[[gnu::target("avx512f")]] void multiply_avx512(const Piece<T>& p) {
  multiply_with_vectors<64>(p);
}
template <typename T>
[[gnu::target("avx2,fma")]] void multiply_avx2(const Piece<T>& p) {
  multiply_with_vectors<32>(p);
}
#endif

template <typename T>
void multiply(const Piece<T>& p, Vectors vectors) {
#if defined(__x86_64__)
  if (vectors == Vectors::bytes64) return multiply_avx512(p);
  if (vectors == Vectors::bytes32) return multiply_avx2(p);
#endif
  multiply_with_vectors<16>(p);
}

}  // namespace

Vectors widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Vectors::bytes64;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Vectors::bytes32;
#endif
  return Vectors::bytes16;
}

void multiply_in_order(const Piece<float>& piece, Vectors vectors) {
  multiply(piece, vectors);
}
void multiply_in_order(const Piece<double>& piece, Vectors vectors) {
  multiply(piece, vectors);
}

}  // namespace tessera::cpu
