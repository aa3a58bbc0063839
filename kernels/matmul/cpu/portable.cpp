// Products by std::fma, for every CPU.
#include <cmath>

#include "kernels/matmul/cpu/chains.h"

namespace tessera::cpu {
namespace {

template <typename T>
struct Portable : VectorTile<T, 16, 4, 2> {
  using Vector = typename VectorTile<T, 16, 4, 2>::Vector;

  TESSERA_INLINE static void multiply_add(Vector& sum, const Vector& a, const Vector& b) {
    for (int i = 0; i < Portable::kLanes; ++i) sum[i] = std::fma(a[i], b[i], sum[i]);
  }
};

}  // namespace

const Engine* portable_engine(DType dtype) {
  return chains_for<Portable>(dtype);
}

}  // namespace tessera::cpu
