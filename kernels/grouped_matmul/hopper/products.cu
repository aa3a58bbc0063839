// The launches of grouped products on Hopper (kernel.h). Three files share them, since each takes a minute to compile.
#include <algorithm>

#include "kernels/grouped_matmul/hopper/kernel.h"

namespace tessera::cuda::groups {

template <typename T, typename U>
bool suits_hopper(const Problem<T, U>& p) {
  // The copy engine takes no empty tensors, and 32-bit places. Parts of sums are for mma.sync.
  if (!p.of_weights && (p.depths < p.K || sizeof(U) > sizeof(T))) return false;
  return gpu::has_hopper() && p.P > 0 && (p.of_weights || p.K > 0) &&
         std::max({p.M, p.N, p.K}) <= INT32_MAX;
}

/// 8-bit numbers are read along the depth.
template <>
void multiply_on_hopper(const Problem<E4m3Pair, bfloat16>& p) {
  constexpr Direction kRows = Direction::rows_transposed;
  p.activated != nullptr ? launch<kRows, 128, Result::gated, Gathered::none>(p)
                         : launch<kRows, 128, Result::product, Gathered::none>(p);
}

template <typename T, typename U>
void multiply_on_hopper(const Problem<T, U>& p) {
  if (p.gathered != Gathered::none) return multiply_gathered(p);
  if (p.of_weights) return launch<Direction::weights, Result::product>(p);
  if constexpr (std::is_same_v<T, U>) {
    if (p.gate_up != nullptr || p.pre != nullptr || p.bias != nullptr) {
      return multiply_with_activation(p);
    }
    p.activated != nullptr ? launch_rows<Result::gated>(p) : launch_rows<Result::product>(p);
  }
}

#define TESSERA_INSTANTIATE(T, U)                     \
  template bool suits_hopper(const Problem<T, U>& p); \
  template void multiply_on_hopper(const Problem<T, U>& p);
TESSERA_INSTANTIATE(bfloat16, bfloat16)
TESSERA_INSTANTIATE(bfloat16, float)
TESSERA_INSTANTIATE(float16, float16)
TESSERA_INSTANTIATE(float16, float)
#undef TESSERA_INSTANTIATE
template bool suits_hopper(const Problem<E4m3Pair, bfloat16>& p);

}  // namespace tessera::cuda::groups
