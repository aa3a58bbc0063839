// The norm in two passes over the gradient, 4 bytes (2 in 16 bits) read per element in each.
//
// A block takes a chunk of 8192 elements of one tensor (kernels/cuda/multi_tensor.h), a thread four
// at a time. The block adds its result to the total by one integer atomic per word. Maxima and sums
// of integers are the same in any order, so the order in which blocks arrive does not matter.
#include "kernels/cuda/multi_tensor.h"
#include "kernels/cuda/reduce.h"
#include "kernels/gradient_norm/fixed_point.h"
#include "kernels/gradient_norm/op.h"

namespace tessera::cuda {
namespace {

template <typename T>
struct Item {
  const T* x;
  std::int64_t count;

  __device__ bool has_quads() const { return gpu::are_quads(x); }
};

/// Calls f(x) with four elements at a time, or one and three zeros. Several loads are in flight.
template <typename T, typename F>
__device__ void for_each_quad(const gpu::Chunk<Item<T>>& chunk, F f) {
  const T* x = chunk.item.x;
  chunk.template for_each<4>([&](std::int64_t i) { f(gpu::Quad<T>::load(x + i).values); },
                             [&](std::int64_t i) {
                               const float alone[4] = {gpu::load(x[i]), 0.0f, 0.0f, 0.0f};
                               f(alone);
                             });
}

/// The values of all threads of a block combined, in thread 0. `combine` takes two integers and
/// does not depend on their order.
template <typename Value, typename Combine>
__device__ Value combine_block(Value value, Combine combine) {
  TESSERA_SHARED(Value, partial, [gpu::kThreads / 32]);
  const auto combine_warp = [&](Value total) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      total = combine(total, __shfl_xor_sync(gpu::kFullWarp, total, distance));
    }
    return total;
  };
  value = combine_warp(value);
  __syncthreads();  // the readers of an earlier call are done
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  return combine_warp(threadIdx.x < gpu::kThreads / 32 ? partial[threadIdx.x] : Value{0});
}

// The bits of |x| are ordered as the values are, with NaN above infinity.
template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    largest_kernel(const __grid_constant__ gpu::TensorList<Item<T>> list, int* result) {
  int largest = 0;
  for_each_quad(gpu::Chunk<Item<T>>::of_block(list), [&](const float(&x)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      largest = max(largest, static_cast<int>(__float_as_uint(x[j]) & 0x7fffffffu));
    }
  });
  largest = combine_block(largest, [](int a, int b) { return max(a, b); });
  if (threadIdx.x == 0) atomicMax(result, largest);
}

// The least e with x < 2^e; x is finite and not negative.
__device__ int exponent_above(float x) {
  int exponent = 0;
  frexpf(x, &exponent);
  return exponent;
}

// floor((x 2^-exponent)^2 2^60) in integers, for |x| < 2^exponent. |x| is a whole number below 2^24
// times 2^power, so its square is a number of 48 bits times 4^power. It is shifted to the left by
// 2 (power - exponent) + 60 bits, which is 12 at most unless all numbers are denormal. The code
// shifts 12 bits (or more, for denormal numbers) to the left and then the rest to the right. That
// is about 18 instructions per element; memory leaves an H200 time for about 27 in f32.
__device__ std::uint64_t fixed_point_square(float x, int exponent) {
  const unsigned bits = __float_as_uint(x) & 0x7fffffffu;
  const int biased = static_cast<int>(bits >> 23);
  const unsigned fraction = bits & 0x7fffffu;
  const unsigned whole = biased == 0 ? fraction : fraction | 0x800000u;
  const int power = max(biased, 1) - 150;
  const int normal = max(exponent, -125);  // the exponent above the smallest normal number
  const unsigned root = whole << (6 + normal - exponent);
  return std::uint64_t{root} * root >> min(2 * (normal - power) - 48, 63);
}

using Word = unsigned long long;

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    squares_kernel(const __grid_constant__ gpu::TensorList<Item<T>> list, const float* largest,
                   Word* words) {
  if (!isfinite(*largest)) return;  // the norm is `largest`
  const int exponent = exponent_above(*largest);
  Word high = 0, low = 0;
  for_each_quad(gpu::Chunk<Item<T>>::of_block(list), [&](const float(&x)[4]) {
    unsigned high_of_four = 0, low_of_four = 0;  // sums of four numbers below 2^30
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint64_t square = fixed_point_square(x[j], exponent);
      high_of_four += static_cast<unsigned>(square >> kLowBits);
      low_of_four += static_cast<unsigned>(square & kLowMask);
    }
    high += high_of_four;
    low += low_of_four;
  });
  const auto add = [](Word a, Word b) { return a + b; };
  high = combine_block(high, add);
  low = combine_block(low, add);
  if (threadIdx.x == 0) {
    atomicAdd(words, high + (low >> kLowBits));
    atomicAdd(words + 1, low & kLowMask);
  }
}

/// One thread.
__global__ void __launch_bounds__(1)
    clip_kernel(float* factor, const float* largest, const std::int64_t* words, const float* loss,
                ClipSettings s) {
  if (!isfinite(*largest) || !isfinite(*loss)) {
    *factor = NAN;
    return;
  }
  // FixedPointSum::root
  const std::int64_t high = words[0] + (words[1] >> kLowBits), low = words[1] & kLowMask;
  const double sum =
      ldexp(static_cast<double>(high), -kLowBits) + ldexp(static_cast<double>(low), -2 * kLowBits);
  const double norm = ldexp(sqrt(sum), exponent_above(*largest)) / s.loss_scale;
  const double clipped = s.max_norm > 0.0 && norm > s.max_norm ? s.max_norm / norm : 1.0;
  *factor = static_cast<float>(clipped / s.loss_scale);
}

/// Calls launch(list) for lists of all tensors.
template <typename Launch>
void for_each_list(std::span<const Tensor> tensors, Launch launch) {
  if (tensors.empty()) return;
  gpu::visit(tensors.front().dtype(), [&](auto type) {
    using T = decltype(type);
    std::vector<Item<T>> items;
    for (const Tensor& tensor : tensors) items.push_back({tensor.data<T>(), tensor.numel()});
    gpu::for_each_list<Item<T>, gpu::kShortList>(items, launch);
  });
}

}  // namespace

void largest_magnitude(Out largest, std::span<const Tensor> tensors) {
  largest.zero();
  auto* result = reinterpret_cast<int*>(largest.data<float>());
  for_each_list(tensors, [&]<typename T>(const gpu::TensorList<Item<T>>& list) {
    gpu::launch(largest_kernel<T>, dim3(static_cast<unsigned>(list.chunks)), dim3(gpu::kThreads), 0,
                gpu::stream(), list, result);
  });
}

void sum_of_squares(Out words, const Tensor& largest, std::span<const Tensor> tensors) {
  words.zero();
  auto* result = reinterpret_cast<Word*>(words.data<std::int64_t>());
  for_each_list(tensors, [&]<typename T>(const gpu::TensorList<Item<T>>& list) {
    gpu::launch(squares_kernel<T>, dim3(static_cast<unsigned>(list.chunks)), dim3(gpu::kThreads), 0,
                gpu::stream(), list, largest.data<float>(), result);
  });
}

void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings) {
  gpu::launch(clip_kernel, dim3(1), dim3(1), 0, gpu::stream(), factor.data<float>(),
              norm.largest().data<float>(), norm.words().data<std::int64_t>(), loss.data<float>(),
              settings);
}

}  // namespace tessera::cuda
