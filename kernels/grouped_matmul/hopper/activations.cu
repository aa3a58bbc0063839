// Products on Hopper with GELU, or with the gradient of GELU or SwiGLU, in the epilogue.
#include "kernels/grouped_matmul/hopper/kernel.h"

namespace tessera::cuda::groups {
namespace {

/// In wide tiles only.
template <Result kResult, typename T>
void launch_gelu(const Problem<T, T>& p) {
  p.transpose_b ? launch<Direction::rows_transposed, 256, kResult, Gathered::none>(p)
                : launch<Direction::rows, 256, kResult, Gathered::none>(p);
}

}  // namespace

template <typename T>
void multiply_with_activation(const Problem<T, T>& p) {
  if (p.pre != nullptr) return launch_gelu<Result::gelu_gradient>(p);
  if (p.bias != nullptr) return launch_gelu<Result::gelu>(p);
  p.activated != nullptr ? launch_rows<Result::weighed_gradient>(p)
                         : launch_rows<Result::gated_gradient>(p);
}

template void multiply_with_activation(const Problem<bfloat16, bfloat16>& p);
template void multiply_with_activation(const Problem<float16, float16>& p);

}  // namespace tessera::cuda::groups
