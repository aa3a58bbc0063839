// Products by NEON, which every AArch64 CPU has. A tile is 4 x 24 floats: 24 of 32 registers hold it.
// 8 x 12 would need as many, but a depth would load 11 operands instead of 10.
#include "kernels/matmul/cpu/chains.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tessera::cpu {
namespace {

template <typename T>
struct Neon : VectorTile<T, 16, 4, 6> {
#if defined(__aarch64__)
  using Vector = typename VectorTile<T, 16, 4, 6>::Vector;

  TESSERA_INLINE static void multiply_add(Vector& sum, Vector a, Vector b) {
    if constexpr (std::is_same_v<T, float>) {
      sum = vfmaq_f32(sum, a, b);
    } else {
      sum = vfmaq_f64(sum, a, b);
    }
  }
#endif
};

}  // namespace

const Engine* neon_engine(DType dtype) {
  return chains_for<Neon>(dtype);
}

}  // namespace tessera::cpu
