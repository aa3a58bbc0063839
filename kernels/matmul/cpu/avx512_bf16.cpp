// Products of bf16 by AVX512-BF16: two products of neighbours along the depth are added to a float.
#include "kernels/matmul/cpu/chains.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace tessera::cpu {
namespace {

struct Pairs {
  using Packed = Pair;
  using Sum = float;
  static constexpr int kLanes = 16, kRows = 8, kVectors = 3, kDepthsAhead = 8;
  static constexpr bool kReadsA = false;

#if defined(__AVX512BF16__)
  using Vector = __m512i;
  using SumVector = __m512;

  TESSERA_INLINE static Vector load(const Pair* from) {
    return _mm512_loadu_si512(from);
  }
  TESSERA_INLINE static Vector broadcast(Pair value) {
    return _mm512_set1_epi32(static_cast<int>(value.bits));
  }
  TESSERA_INLINE static void multiply_add(SumVector& sum, Vector a, Vector b) {
    sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
#endif
};

}  // namespace

const Engine* avx512_bf16_engine(DType dtype) {
  return dtype == DType::bf16 ? &kChains<Pairs, bfloat16> : nullptr;
}

}  // namespace tessera::cpu
