// Conversion between f32, bf16 and f16: the bits of the CPU's, for every value that there is.
//
// Traffic: x read, y written (6 bytes an element between 16 bits and f32). A thread takes 8
// elements, so that the narrower side is one 16-byte vector and an f32 side two.
#include "kernels/cast/op.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"

namespace tessera::cuda {
namespace {

constexpr int kWidth = 8;

// The hardware's conversions make every NaN one and the same. runtime/half.h keeps its sign and
// upper bits, so the NaNs go by hand: 3 instructions, hidden by the memory's pace.

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(bfloat16 value) {
  return gpu::load(value);
}
__device__ inline float widen(float16 value) {
  const unsigned magnitude = value.bits & 0x7fffu, sign = value.bits & 0x8000u;
  if (magnitude > 0x7c00u) return __uint_as_float(sign << 16 | 0x7f800000u | magnitude << 13);
  return gpu::load(value);
}

__device__ inline void narrow(float& to, float value) {
  to = value;
}
__device__ inline void narrow(bfloat16& to, float value) {
  const unsigned bits = __float_as_uint(value);
  gpu::store(to, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) to.bits = static_cast<std::uint16_t>(bits >> 16 | 0x40u);
}
__device__ inline void narrow(float16& to, float value) {
  const unsigned bits = __float_as_uint(value);
  gpu::store(to, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    to.bits = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u);
  }
}

/// kWidth elements, moved as 16-byte vectors if `aligned`.
template <typename T>
struct alignas(16) Elements {
  T values[kWidth];

  __device__ static Elements load(const T* source) {
    Elements elements;
    uint4 raw[sizeof(Elements) / 16];
#pragma unroll
    for (unsigned i = 0; i < sizeof(Elements) / 16; ++i) {
      raw[i] = reinterpret_cast<const uint4*>(source)[i];
    }
    memcpy(static_cast<void*>(elements.values), raw, sizeof(Elements));
    return elements;
  }
  __device__ void store(T* destination) const {
    uint4 raw[sizeof(Elements) / 16];
    memcpy(raw, values, sizeof(Elements));
#pragma unroll
    for (unsigned i = 0; i < sizeof(Elements) / 16; ++i) {
      reinterpret_cast<uint4*>(destination)[i] = raw[i];
    }
  }
};

template <typename To, typename From>
__global__ void __launch_bounds__(gpu::kThreads)
    cast_kernel(To* y, const From* x, std::int64_t count, bool aligned) {
  const std::int64_t i =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
  if (aligned && i + kWidth <= count) {
    const auto from = Elements<From>::load(x + i);
    Elements<To> to;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) narrow(to.values[j], widen(from.values[j]));
    to.store(y + i);
  } else {
    const std::int64_t end = i + kWidth < count ? i + kWidth : count;
    for (std::int64_t j = i; j < end; ++j) narrow(y[j], widen(x[j]));
  }
}

}  // namespace

void cast(Out y, const Tensor& x) {
  const std::int64_t count = y.numel();
  if (count == 0) return;
  const unsigned blocks = gpu::blocks_for(count, gpu::kThreads * kWidth, INT32_MAX);
  gpu::visit(y.dtype(), [&](auto to) {
    gpu::visit(x.dtype(), [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      To* const results = y.data<To>();
      const From* const values = x.data<From>();
      const bool aligned = gpu::is_vectorizable(results, 0) && gpu::is_vectorizable(values, 0);
      gpu::launch(cast_kernel<To, From>, dim3(blocks), dim3(gpu::kThreads), 0, gpu::stream(),
                  results, values, count, aligned);
    });
  });
}

}  // namespace tessera::cuda
