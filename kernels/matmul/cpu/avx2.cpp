// Products by AVX2 and FMA. A tile is 6 x 16 floats: 12 of the 16 registers hold it. A tile of 4 x 24
// would read 1.5 times as much of b, which comes from the second-level cache.
#include "kernels/matmul/cpu/chains.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace tessera::cpu {
namespace {

template <typename T>
struct Avx2 : VectorTile<T, 32, 6, 2> {
#if defined(__AVX2__) && defined(__FMA__)
  using Vector = typename VectorTile<T, 32, 6, 2>::Vector;

  TESSERA_INLINE static void multiply_add(Vector& sum, Vector a, Vector b) {
    if constexpr (std::is_same_v<T, float>) {
      sum = _mm256_fmadd_ps(a, b, sum);
    } else {
      sum = _mm256_fmadd_pd(a, b, sum);
    }
  }
#endif
};

}  // namespace

const Engine* avx2_engine(DType dtype) {
  return chains_for<Avx2>(dtype);
}

}  // namespace tessera::cpu
