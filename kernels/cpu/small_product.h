// Products of matrices that fit in the first cache levels.
//
// A kernel's task computes them itself. They use the micro-kernels of large products
// (kernels/matmul/cpu/engine.h), but nothing is packed: the columns of B are read where they lie,
// and so is A in either direction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matmul/cpu/engine.h"
#include "kernels/op.h"
#include "runtime/integer.h"

namespace tessera::cpu {

/// Elements of a vector of 64 bytes, the widest. Instruction sets with narrower ones use several.
template <typename T>
inline constexpr std::int64_t kVectorSize = 64 / static_cast<std::int64_t>(sizeof(T));

/// `n` rounded up to whole vectors.
template <typename T>
constexpr std::int64_t whole_vectors(std::int64_t n) {
  return round_up(n, kVectorSize<T>);
}

/// A matrix in memory: element (i, j) lies at data[i * row_stride + j * column_stride].
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  T* row(std::int64_t i) const { return data + i * row_stride; }
  /// The part that begins at element (i, j).
  Matrix from(std::int64_t i, std::int64_t j) const {
    return {data + i * row_stride + j * column_stride, row_stride, column_stride};
  }
  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

/// C is rows x columns; A is rows x depth and B is depth x columns.
struct ProductExtent {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
};

/// Multiplies matrices of T, which is float or double, by the micro-kernel of an instruction set.
/// The set does not change the bits.
template <typename T>
class SmallProduct {
 public:
  explicit SmallProduct(Isa isa) : engine_(engine_for(isa, dtype_of<T>)) {}

  /// C = A B, or C += A B. The columns of B and C are contiguous, and so are A's rows or its
  /// columns. `extent.columns` is rounded up to whole vectors: the rows of B and C must have room
  /// for that. Sums run over the depth in order and begin with C's elements: a product may be cut
  /// along the depth without a change of bits.
  void operator()(const Matrix<T>& c, const Matrix<T>& a, const Matrix<T>& b,
                  const ProductExtent& extent, Accumulate accumulate) const {
    const std::int64_t columns = whole_vectors<T>(extent.columns);
    if (columns == 0) return;
    // Equal parts: a tile of one vector would wait for its own sums.
    const std::int64_t parts = ceil_div(columns, engine_.columns);
    const std::int64_t width =
        std::min<std::int64_t>(engine_.columns, whole_vectors<T>(ceil_div(columns, parts)));
    Tile tile{.a_row = a.column_stride == 1 ? a.row_stride : 0,
              .a_depth = a.column_stride,
              .b_stride = b.row_stride,
              .c_row = c.row_stride,
              .depth = extent.depth,
              .continues = accumulate == Accumulate::yes};
    for (std::int64_t j = 0; j < columns; j += width) {
      tile.columns = std::min(width, columns - j);
      tile.b = b.data + j;
      for (std::int64_t i = 0; i < extent.rows; i += engine_.rows) {
        tile.rows = std::min<std::int64_t>(engine_.rows, extent.rows - i);
        tile.a = a.row(i);
        tile.c = c.row(i) + j;
        engine_.multiply(tile);
      }
    }
  }

 private:
  const Engine& engine_;
};

}  // namespace tessera::cpu
