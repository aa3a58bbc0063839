// Products by AVX2 and FMA. A tile is 4 x 24 floats: 12 of the 16 registers hold it.
#include "kernels/matmul/cpu/engine.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "kernels/matmul/cpu/chains.h"

namespace tessera::cpu {
namespace {

template <typename T>
struct Avx2;

template <>
struct Avx2<float> {
  using Packed = float;
  using Sum = float;
  using Vector = __m256;
  using SumVector = __m256;
  static constexpr int kLanes = 8, kRows = 4, kVectors = 3;
  static constexpr bool kReadsA = true;

  TESSERA_INLINE static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  TESSERA_INLINE static Vector broadcast(float value) { return _mm256_set1_ps(value); }
  TESSERA_INLINE static void multiply_add(SumVector& sum, Vector a, Vector b) {
    sum = _mm256_fmadd_ps(a, b, sum);
  }
};

template <>
struct Avx2<double> {
  using Packed = double;
  using Sum = double;
  using Vector = __m256d;
  using SumVector = __m256d;
  static constexpr int kLanes = 4, kRows = 4, kVectors = 3;
  static constexpr bool kReadsA = true;

  TESSERA_INLINE static Vector load(const double* from) { return _mm256_loadu_pd(from); }
  TESSERA_INLINE static Vector broadcast(double value) { return _mm256_set1_pd(value); }
  TESSERA_INLINE static void multiply_add(SumVector& sum, Vector a, Vector b) {
    sum = _mm256_fmadd_pd(a, b, sum);
  }
};

}  // namespace

const Engine* avx2_engine(DType dtype) {
  return chains_for<Avx2>(dtype);
}

}  // namespace tessera::cpu
#else
namespace tessera::cpu {
const Engine* avx2_engine(DType) {
  return nullptr;
}
}  // namespace tessera::cpu
#endif
