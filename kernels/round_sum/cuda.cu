// y = residual + (sums + bias). Traffic: sums, residual and y once (8 bytes an element in 16 bits); the
// bias comes from the second-level cache.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/round_sum/op.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    round_sum_kernel(T* y, const float* sums, const T* bias, const T* residual, std::int64_t count,
                     std::int64_t columns) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float value = sums[i];
  if (bias != nullptr) value += gpu::load(bias[i % columns]);
  if (residual != nullptr) value += gpu::load(residual[i]);
  gpu::store(y[i], value);
}

}  // namespace

void round_sum(Out y, const Tensor& sums, const Tensor& bias, const Tensor& residual) {
  if (y.numel() == 0) return;
  gpu::visit(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const unsigned blocks = gpu::blocks_for(y.numel(), gpu::kThreads, INT32_MAX);
    gpu::launch(round_sum_kernel<T>, dim3(blocks), dim3(gpu::kThreads), 0, gpu::stream(),
                y.data<T>(), sums.data<float>(), bias.defined() ? bias.data<T>() : nullptr,
                residual.defined() ? residual.data<T>() : nullptr, y.numel(), y.size(-1));
  });
}

}  // namespace tessera::cuda
