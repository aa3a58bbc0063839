// Products of matrices that fit in the first cache levels.
//
// Kernels that interleave products with other work cannot leave them to a BLAS.
//
// The innermost block is a few rows by a few vectors of C, summed in registers over the whole depth
// (the micro-kernel of Goto, van de Geijn 2008): one vector of B serves all its rows, one broadcast
// element of A all its columns. The compiler does that for loops of fixed length over a local
// array.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/op.h"
#include "runtime/integer.h"

namespace tessera::cpu {

// Vectors of C that the registers hold next to the operands: 24 of 32, or 12 of 16.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kAccumulators = 24;
#else
inline constexpr int kVectorBytes = 32;
inline constexpr int kAccumulators = 12;
#endif
inline constexpr int kMaxBlockVectors = kAccumulators / 6;

/// Elements of a vector.
template <typename T>
inline constexpr std::int64_t kVectorSize = kVectorBytes / static_cast<std::int64_t>(sizeof(T));

/// `n` rounded up to whole vectors.
template <typename T>
constexpr std::int64_t whole_vectors(std::int64_t n) {
  return round_up(n, kVectorSize<T>);
}

/// A matrix in memory: element (i, j) lies at data[i * row_stride + j * column_stride].
template <typename T>
struct Tile {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  T* row(std::int64_t i) const { return data + i * row_stride; }
  /// The part that begins at element (i, j).
  Tile from(std::int64_t i, std::int64_t j) const {
    return {data + i * row_stride + j * column_stride, row_stride, column_stride};
  }
  Tile transposed() const { return {data, column_stride, row_stride}; }
};

/// C is rows x columns; A is rows x depth and B is depth x columns.
struct TileExtent {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
};

namespace detail {

template <int kRows, int kVectors, typename T>
void multiply_block(const Tile<T>& c, const Tile<T>& a, const Tile<T>& b, std::int64_t depth,
                    Accumulate accumulate) {
  constexpr std::int64_t kColumns = kVectors * kVectorSize<T>;
  T sum[kRows][kColumns] = {};
  if (accumulate == Accumulate::yes) {
    for (int i = 0; i < kRows; ++i) {
      const T* before = c.data + i * c.row_stride;
#pragma omp simd
      for (int j = 0; j < kColumns; ++j) sum[i][j] = before[j];
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const T* from = b.data + k * b.row_stride;
    for (int i = 0; i < kRows; ++i) {
      const T factor = a.data[i * a.row_stride + k * a.column_stride];
#pragma omp simd
      for (int j = 0; j < kColumns; ++j) sum[i][j] += factor * from[j];
    }
  }
  for (int i = 0; i < kRows; ++i) {
    T* to = c.data + i * c.row_stride;
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) to[j] = sum[i][j];
  }
}

/// The block of `rows` <= kRows rows.
template <int kRows, int kVectors, typename T>
void multiply_last_rows(const Tile<T>& c, const Tile<T>& a, const Tile<T>& b, std::int64_t rows,
                        std::int64_t depth, Accumulate accumulate) {
  if (rows == kRows) {
    multiply_block<kRows, kVectors>(c, a, b, depth, accumulate);
  } else if constexpr (kRows > 1) {
    multiply_last_rows<kRows - 1, kVectors>(c, a, b, rows, depth, accumulate);
  }
}

/// All rows of `vectors` <= kVectors vectors of columns.
template <int kVectors, typename T>
void multiply_strip(const Tile<T>& c, const Tile<T>& a, const Tile<T>& b, std::int64_t vectors,
                    const TileExtent& extent, Accumulate accumulate) {
  if (vectors == kVectors) {
    constexpr int kRows = std::min(8, kAccumulators / kVectors);
    std::int64_t i = 0;
    for (; i + kRows <= extent.rows; i += kRows) {
      multiply_block<kRows, kVectors>(c.from(i, 0), a.from(i, 0), b, extent.depth, accumulate);
    }
    multiply_last_rows<kRows - 1, kVectors>(c.from(i, 0), a.from(i, 0), b, extent.rows - i,
                                            extent.depth, accumulate);
  } else if constexpr (kVectors > 1) {
    multiply_strip<kVectors - 1>(c, a, b, vectors, extent, accumulate);
  }
}

}  // namespace detail

/// C = A B, or C += A B. The columns of B and C are contiguous, and `extent.columns` is rounded up
/// to whole vectors: their rows must have room for that. Sums run over the depth in order and begin
/// with C's elements: a product may be cut along the depth without a change of bits.
template <typename T>
void multiply(const Tile<T>& c, const Tile<T>& a, const Tile<T>& b, const TileExtent& extent,
              Accumulate accumulate) {
  constexpr std::int64_t kStrip = kMaxBlockVectors * kVectorSize<T>;
  const std::int64_t columns = whole_vectors<T>(extent.columns);
  for (std::int64_t j = 0; j < columns; j += kStrip) {
    const std::int64_t vectors = std::min(kStrip, columns - j) / kVectorSize<T>;
    detail::multiply_strip<kMaxBlockVectors>(c.from(0, j), a, b.from(0, j), vectors, extent,
                                             accumulate);
  }
}

}  // namespace tessera::cpu
