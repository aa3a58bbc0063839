// The elementwise parts of Newton-Schulz iterations.
//
// normalize   three launches: sums of squares of at most kMostBlocks blocks, the factor from their
//             sum, and the product. Traffic: x read twice and written (6 bytes an element in 16 bits).
// combine     x read and written, sums read (8 bytes an element in 16 bits).
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/newton_schulz/parts.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kMostBlocks = 1024;
constexpr std::int64_t kPerBlock = 16 * gpu::kThreads;

/// The sum over the block's threads, in thread 0, in a fixed order.
__device__ double block_sum(double value) {
  TESSERA_SHARED(double, values, [gpu::kThreads]);
  values[threadIdx.x] = value;
  for (unsigned half = gpu::kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];
}

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    sum_of_squares_kernel(double* sums, const T* x, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * gpu::kThreads;
  double sum = 0.0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gpu::kThreads + threadIdx.x;
       i < count; i += stride) {
    const double value = gpu::load(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(gpu::kThreads)
    factor_kernel(float* factor, const double* sums, unsigned count, double epsilon) {
  double sum = 0.0;
  for (unsigned i = threadIdx.x; i < count; i += gpu::kThreads) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *factor = static_cast<float>(1.0 / fmax(sqrt(sum), epsilon));
}

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    scale_kernel(T* x, const float* factor, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gpu::kThreads + threadIdx.x;
  if (i < count) gpu::store(x[i], gpu::load(x[i]) * *factor);
}

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    combine_kernel(T* x, float alpha, float beta, const float* sums, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gpu::kThreads + threadIdx.x;
  if (i < count) gpu::store(x[i], fmaf(alpha, gpu::load(x[i]), beta * sums[i]));
}

/// A block for each kThreads elements.
dim3 blocks_of(std::int64_t count) {
  return dim3(gpu::blocks_for(count, gpu::kThreads, INT32_MAX));
}

}  // namespace

void normalize(Out x, double epsilon) {
  const std::int64_t count = x.numel();
  const unsigned blocks = gpu::blocks_for(count, kPerBlock, kMostBlocks);
  const CategoryScope scope(Category::workspace);
  // f64 is for the CPU's kernels only, so the sums are bytes.
  const Tensor sums =
      Tensor::empty({static_cast<std::int64_t>(blocks * sizeof(double))}, DType::u8);
  const Tensor factor = Tensor::empty({1}, DType::f32);
  auto* const sum = reinterpret_cast<double*>(sums.raw());
  gpu::visit(x.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(sum_of_squares_kernel<T>, dim3(blocks), dim3(gpu::kThreads), 0, gpu::stream(), sum,
                x.data<T>(), count);
    gpu::launch(factor_kernel, dim3(1), dim3(gpu::kThreads), 0, gpu::stream(), factor.data<float>(),
                sum, blocks, epsilon);
    gpu::launch(scale_kernel<T>, blocks_of(count), dim3(gpu::kThreads), 0, gpu::stream(),
                x.data<T>(), factor.data<float>(), count);
  });
}

void combine(Out x, double alpha, double beta, const Tensor& sums) {
  gpu::visit(x.dtype(), [&](auto type) {
    using T = decltype(type);
    gpu::launch(combine_kernel<T>, blocks_of(x.numel()), dim3(gpu::kThreads), 0, gpu::stream(),
                x.data<T>(), static_cast<float>(alpha), static_cast<float>(beta),
                sums.data<float>(), x.numel());
  });
}

}  // namespace tessera::cuda
