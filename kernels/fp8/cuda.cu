// Traffic of fp8_round: one read, one write (4 bytes an element). The largest value is an integer maximum, so the
// order of blocks does not matter.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/magnitude.h"
#include "kernels/cuda/numeric.h"
#include "kernels/fp8/grid.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;
using Vector = gpu::Vector<bfloat16>;

__device__ std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

/// A thread takes vectors of 8, a grid's width from one to the next, and the first threads the last elements.
__global__ void __launch_bounds__(kThreads)
    round_kernel(bfloat16* y, const bfloat16* x, std::int64_t vectors, std::int64_t count,
                 Fp8Grid grid, const float* scale_at, float* largest) {
  const float scale = *scale_at, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  const auto rounded = [&](float value) { return inverse * grid.nearest(scale * value); };
  const std::int64_t first = thread_of_grid();
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  int most = 0;
  for (std::int64_t v = first; v < vectors; v += threads) {
    const uint4 raw = Vector::load_raw(x + v * Vector::kSize);
    Vector values = Vector::unpack(raw);
#pragma unroll
    for (float& value : values.values) {
      most = max(most, gpu::bits_of_magnitude(value));
      value = rounded(value);
    }
    if (scale == 0.0f) {
      *reinterpret_cast<uint4*>(y + v * Vector::kSize) = raw;
    } else {
      values.store(y + v * Vector::kSize);
    }
  }
  for (std::int64_t i = vectors * Vector::kSize + first; i < count; i += threads) {
    const float value = gpu::load(x[i]);
    most = max(most, gpu::bits_of_magnitude(value));
    if (scale == 0.0f) {
      y[i] = x[i];
    } else {
      gpu::store(y[i], rounded(value));
    }
  }
  gpu::raise(largest, most);
}

__global__ void __launch_bounds__(kThreads)
    record_kernel(Fp8History history, float* largest, float* excess, const float* scales,
                  const float* limits) {
  const std::int64_t i = thread_of_grid();
  if (i >= history.count) return;
  const float now = largest[i];
  excess[i] = now * scales[i] / limits[i];
  history.enter(i, now);
  largest[i] = 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    scales_kernel(float* scales, Fp8History history, const float* limits) {
  const std::int64_t i = thread_of_grid();
  if (i < history.count) scales[i] = history.scale(i, limits[i]);
}

/// One thread per tensor.
template <typename... Parameters, typename... Arguments>
void launch_for(const Fp8History& history, void (*kernel)(Parameters...), Arguments... arguments) {
  if (history.count == 0) return;
  gpu::launch(kernel, dim3(gpu::blocks_for(history.count, kThreads)), dim3(kThreads), 0,
              gpu::stream(), arguments...);
}

}  // namespace

void fp8_round(Out y, const Tensor& x, Fp8Format format, const Tensor& scale, Out largest) {
  const std::int64_t count = x.numel();
  if (count == 0) return;
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(x.raw()) | reinterpret_cast<std::uintptr_t>(y.raw());
  const std::int64_t vectors = addresses % 16 == 0 ? count / Vector::kSize : 0;
  gpu::launch(round_kernel, dim3(gpu::blocks_for(count, 4 * Vector::kSize * kThreads, 4096)),
              dim3(kThreads), 0, gpu::stream(), y.data<bfloat16>(), x.data<bfloat16>(), vectors,
              count, Fp8Grid::of(format), scale.data<float>(), largest.data<float>());
}

void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  launch_for(past, record_kernel, past, largest.data<float>(), excess.data<float>(),
             scales.data<float>(), limits.data<float>());
}

void fp8_scales(Out scales, const Tensor& history, const Tensor& limits) {
  const Fp8History past{history.data<float>(), history.size(0), history.size(1)};
  launch_for(past, scales_kernel, scales.data<float>(), past, limits.data<float>());
}

}  // namespace tessera::cuda
