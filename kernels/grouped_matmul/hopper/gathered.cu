// Grouped products on Hopper with the rows of tokens (gather.h).
#include "kernels/grouped_matmul/hopper/kernel.h"

namespace tessera::cuda::groups {

template <typename T, typename U>
void multiply_gathered(const Problem<T, U>& p) {
  if (p.of_weights) {
    constexpr Direction kWeights = Direction::weights;
    return p.gathered == Gathered::a ? launch<kWeights, Result::product, Gathered::a>(p)
                                     : launch<kWeights, Result::product, Gathered::b>(p);
  }
  if constexpr (std::is_same_v<T, U>) {
    if (p.gate_up != nullptr) return launch_rows<Result::weighed_gradient, Gathered::a>(p);
    p.activated != nullptr ? launch_rows<Result::gated, Gathered::a>(p)
                           : launch_rows<Result::product, Gathered::a>(p);
  }
}

template void multiply_gathered(const Problem<bfloat16, bfloat16>& p);
template void multiply_gathered(const Problem<bfloat16, float>& p);
template void multiply_gathered(const Problem<float16, float16>& p);
template void multiply_gathered(const Problem<float16, float>& p);

}  // namespace tessera::cuda::groups
