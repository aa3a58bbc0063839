// Products by AVX-512. A tile is 8 x 48 floats: 24 of the 32 registers hold it.
#include "kernels/matmul/cpu/engine.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>

#include "kernels/matmul/cpu/chains.h"

namespace tessera::cpu {
namespace {

template <typename T>
struct Avx512;

template <>
struct Avx512<float> {
  using Packed = float;
  using Sum = float;
  using Vector = __m512;
  using SumVector = __m512;
  static constexpr int kLanes = 16, kRows = 8, kVectors = 3;
  static constexpr bool kReadsA = true;

  TESSERA_INLINE static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  TESSERA_INLINE static Vector broadcast(float value) { return _mm512_set1_ps(value); }
  TESSERA_INLINE static void multiply_add(SumVector& sum, Vector a, Vector b) {
    sum = _mm512_fmadd_ps(a, b, sum);
  }
};

template <>
struct Avx512<double> {
  using Packed = double;
  using Sum = double;
  using Vector = __m512d;
  using SumVector = __m512d;
  static constexpr int kLanes = 8, kRows = 8, kVectors = 3;
  static constexpr bool kReadsA = true;

  TESSERA_INLINE static Vector load(const double* from) { return _mm512_loadu_pd(from); }
  TESSERA_INLINE static Vector broadcast(double value) { return _mm512_set1_pd(value); }
  TESSERA_INLINE static void multiply_add(SumVector& sum, Vector a, Vector b) {
    sum = _mm512_fmadd_pd(a, b, sum);
  }
};

}  // namespace

const Engine* avx512_engine(DType dtype) {
  return chains_for<Avx512>(dtype);
}

}  // namespace tessera::cpu
#else
namespace tessera::cpu {
const Engine* avx512_engine(DType) {
  return nullptr;
}
}  // namespace tessera::cpu
#endif
