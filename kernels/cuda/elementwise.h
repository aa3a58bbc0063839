// Elementwise kernels: y[i] = f(x[i]...).
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"

namespace tessera::gpu {

/// A thread takes one 16-byte vector of every input, and the last elements one by one.
template <typename T, typename F, typename... X>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(T* y, F f, std::int64_t count, const X*... x) {
  constexpr int kWidth = Vector<T>::kSize;
  const std::int64_t i =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
  if (i + kWidth <= count) {
    Vector<T> result;
    const auto apply = [&](const auto&... in) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result.values[j] = f(in.values[j]...);
    };
    apply(Vector<X>::load(x + i)...);
    result.store(y + i);
  } else {
    for (std::int64_t j = i; j < count; ++j) store(y[j], f(load(x[j])...));
  }
}

template <typename T, typename F, typename... X>
__global__ void __launch_bounds__(kThreads)
    elementwise_unaligned_kernel(T* y, F f, std::int64_t count, const X*... x) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) store(y[i], f(load(x[i])...));
}

/// y[i] = f(x[i]...) for i in [0, count). f is a functor of floats; y and every x have one element
/// type. Each x is y itself or does not overlap it.
template <typename T, typename F, typename... X>
void elementwise(std::int64_t count, T* y, F f, const X*... x) {
  if (count == 0) return;
  const bool aligned =
      ((reinterpret_cast<std::uintptr_t>(x) | ...) | reinterpret_cast<std::uintptr_t>(y)) % 16 == 0;
  if (aligned) {
    const unsigned blocks = blocks_for(count, kThreads * Vector<T>::kSize, INT32_MAX);
    launch(elementwise_kernel<T, F, X...>, dim3(blocks), dim3(kThreads), 0, stream(), y, f, count,
           x...);
  } else {
    const unsigned blocks = blocks_for(count, kThreads, INT32_MAX);
    launch(elementwise_unaligned_kernel<T, F, X...>, dim3(blocks), dim3(kThreads), 0, stream(), y,
           f, count, x...);
  }
}

}  // namespace tessera::gpu
