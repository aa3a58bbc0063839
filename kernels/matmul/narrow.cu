// c = round(product) or c = round(c + product): 6 or 8 bytes per element, one element per thread.
// Not used in training; kept simple.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/matmul/narrow.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    narrow_kernel(T* c, const float* product, std::int64_t count, bool accumulate) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float before = accumulate ? gpu::load(c[i]) : 0.0f;
  gpu::store(c[i], before + product[i]);
}

}  // namespace

void narrow(Out c, const Tensor& product, Accumulate accumulate) {
  gpu::visit(c.dtype(), [&](auto type) {
    using T = decltype(type);
    const unsigned blocks = gpu::blocks_for(c.numel(), gpu::kThreads, INT32_MAX);
    gpu::launch(narrow_kernel<T>, dim3(blocks), dim3(gpu::kThreads), 0, gpu::stream(), c.data<T>(),
                product.data<float>(), c.numel(), accumulate == Accumulate::yes);
  });
}

}  // namespace tessera::cuda
