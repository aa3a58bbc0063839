// Matrix products by Eigen, a baseline where the library is installed.
//
// Eigen's instruction set is that of the file that includes it: here AVX2 with FMA on x86-64. So the file
// shares no inline function with others.
#pragma once

#include <cstdint>

namespace tessera {

#if defined(TESSERA_EIGEN)
inline constexpr bool kHasEigen = true;
#else
inline constexpr bool kHasEigen = false;
#endif

/// c [m, n] = op(a) op(b) in f32, row by row.
struct EigenProduct {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  const float *a, *b;
  float* c;
};
/// With Eigen's own threads (OMP_NUM_THREADS). Missing in builds without Eigen.
void multiply(const EigenProduct& product);

}  // namespace tessera
