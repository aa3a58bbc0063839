// Conversion between f32, bf16 and f16, with the CPU's bits for every value.
//
// Traffic: x read, y written (6 bytes an element between 16 bits and f32). A thread takes four
// neighbouring elements at a time, 16 bytes of f32 or 8 of a 16-bit type: see
// kernels/cuda/multi_tensor.h.
#include <type_traits>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/cuda/multi_tensor.h"

namespace tessera::cuda {
namespace {

// The hardware converts every NaN to the same NaN. runtime/half.h keeps the sign and the upper
// bits, so NaNs are converted by hand: 3 instructions, which the time for memory hides.

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

template <typename To, typename From>
__device__ void convert(To& y, const From& x) {
  if constexpr (std::is_same_v<To, From>) {
    y = x;
  } else {
    narrow(y, widen(x));
  }
}

/// Four neighbouring elements as stored, moved by one instruction.
template <typename T>
struct Four {
  using Raw = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
  T values[4];

  __device__ static Four load(const T* source) {
    const Raw raw = *reinterpret_cast<const Raw*>(source);
    Four four;
    memcpy(static_cast<void*>(four.values), &raw, sizeof raw);
    return four;
  }
  __device__ void store(T* destination) const {
    Raw raw;
    memcpy(&raw, values, sizeof raw);
    *reinterpret_cast<Raw*>(destination) = raw;
  }
};

template <typename To, typename From>
struct Item {
  To* y;
  const From* x;
  std::int64_t count;

  __device__ bool has_quads() const { return gpu::are_quads(y, x); }
};

template <typename To, typename From>
__global__ void __launch_bounds__(gpu::kThreads)
    cast_kernel(const __grid_constant__ gpu::TensorList<Item<To, From>> list) {
  const auto chunk = gpu::Chunk<Item<To, From>>::of_block(list);
  To* const y = chunk.item.y;
  const From* const x = chunk.item.x;
  const auto cast_four = [=](std::int64_t i) {
    const auto from = Four<From>::load(x + i);
    Four<To> to;
#pragma unroll
    for (int j = 0; j < 4; ++j) convert(to.values[j], from.values[j]);
    to.store(y + i);
  };
  chunk.for_each(cast_four, [=](std::int64_t i) { convert(y[i], x[i]); });
}

}  // namespace

void cast_all(std::span<const Tensor> ys, std::span<const Tensor> xs) {
  gpu::visit(ys.front().dtype(), [&](auto to) {
    gpu::visit(xs.front().dtype(), [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      std::vector<Item<To, From>> items;
      for (std::size_t i = 0; i < ys.size(); ++i) {
        items.push_back({ys[i].data<To>(), xs[i].data<From>(), ys[i].numel()});
      }
      gpu::launch_for_each_list<Item<To, From>>(items, cast_kernel<To, From>);
    });
  });
}

}  // namespace tessera::cuda
