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

/// The CPU's vectors, by their bytes.
enum class Vectors { bytes16 = 16, bytes32 = 32, bytes64 = 64 };

/// Those of AVX-512, of AVX2 with fused multiply-adds, or else 16 bytes.
Vectors widest_vectors();

/// The CPU must have the vectors. Without fused multiply-adds, in a build for CPUs that may lack them
/// and with 16 bytes, a product is rounded before it is added.
void multiply_in_order(const Piece<float>& piece, Vectors vectors = widest_vectors());
void multiply_in_order(const Piece<double>& piece, Vectors vectors = widest_vectors());

}  // namespace tessera::cpu
