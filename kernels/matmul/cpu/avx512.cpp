// Products by AVX-512. A tile is 8 x 48 floats: 24 of the 32 registers hold it.
#include "kernels/matmul/cpu/chains.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#endif

namespace tessera::cpu {
namespace {

template <typename T>
struct Avx512 : VectorTile<T, 64, 8, 3> {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  using Vector = typename VectorTile<T, 64, 8, 3>::Vector;

  TESSERA_INLINE static void multiply_add(Vector& sum, Vector a, Vector b) {
    if constexpr (std::is_same_v<T, float>) {
      sum = _mm512_fmadd_ps(a, b, sum);
    } else {
      sum = _mm512_fmadd_pd(a, b, sum);
    }
  }
#endif
};

}  // namespace

const Engine* avx512_engine(DType dtype) {
  return chains_for<Avx512>(dtype);
}

}  // namespace tessera::cpu
