// Products by std::fma, for every CPU.
#include <cmath>

#include "kernels/matmul/cpu/chains.h"

namespace tessera::cpu {
namespace {

template <typename T>
struct Portable {
  using Packed = T;
  using Sum = T;
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  static constexpr int kRows = 4, kVectors = 2;
  static constexpr bool kReadsA = true;
  using Vector = typename VectorOf<T, kLanes>::type;
  using SumVector = Vector;

  TESSERA_INLINE static Vector load(const T* from) {
    Vector to;
    std::memcpy(&to, from, sizeof(to));
    return to;
  }
  TESSERA_INLINE static Vector broadcast(T value) { return value - Vector{}; }
  TESSERA_INLINE static void multiply_add(Vector& sum, const Vector& a, const Vector& b) {
    for (int i = 0; i < kLanes; ++i) sum[i] = std::fma(a[i], b[i], sum[i]);
  }
};

}  // namespace

const Engine* portable_engine(DType dtype) {
  return chains_for<Portable>(dtype);
}

}  // namespace tessera::cpu
