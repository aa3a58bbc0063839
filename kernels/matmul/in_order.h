// Products whose sums run over k in order, without a BLAS.
//
// An element of a piece is one chain of fused multiply-adds, s = a[i, k] b[k, j] + s for k = 0, 1,
// ..., which is then added to c. So it does not depend on the other rows and columns, on the
// extents, or on the width of the CPU's vectors.
#pragma once

#include <cstdint>

namespace tessera::cpu {

/// The most k that one piece of a sum has.
inline constexpr std::int64_t kMostDepth = 320;

/// c [rows, columns] (+)= a [rows, depth] b [depth, columns], with 1 <= depth <= kMostDepth.
template <typename T>
struct Piece {
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool accumulate = false;
  /// Element (i, k) lies at a[i * a_row + k].
  const T* a = nullptr;
  std::int64_t a_row = 0;
  /// Element (k, j) lies at b[k * stride + j] or, transposed, at b[j * stride + k].
  const T* b = nullptr;
  std::int64_t b_stride = 0;
  bool b_transposed = false;
  /// Element (i, j) lies at c[i * c_row + j].
  T* c = nullptr;
  std::int64_t c_row = 0;
};

/// Uses the widest vectors that the CPU has: 64, 32 or 16 bytes.
void multiply_in_order(const Piece<float>& piece);
void multiply_in_order(const Piece<double>& piece);

}  // namespace tessera::cpu
