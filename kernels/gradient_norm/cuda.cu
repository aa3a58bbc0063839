// The sum of squares in one pass over the gradient, 4 bytes (2 in 16 bits) read per element.
//
// A block takes a chunk of 8192 elements of one tensor (kernels/cuda/multi_tensor.h), a thread 32 of
// them into its registers. A warp sums the squares of its 1024 elements in fixed point, relative to
// the largest of them, and adds the sum to words of its own. At the end the block adds the words of
// its warps to the total by one integer atomic per word that is not zero, about five. Sums of
// integers are the same in any order, so the order in which blocks arrive does not matter.
//
// There are two forms of a warp's sum with equal results (integer_squares.h, f64_squares.h): consumer GPUs
// compute in f64 at 1/64 of the rate of f32.
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/step_value.h"
#include "kernels/gradient_norm/f64_squares.h"
#include "kernels/gradient_norm/integer_squares.h"
#include "kernels/gradient_norm/op.h"

namespace tessera::cuda {
namespace {

constexpr int kWarps = gpu::kThreads / 32;
constexpr int kBitsOfInfinity = 0x7f800000;

template <typename T>
struct Item {
  const T* x;
  std::int64_t count;
};

/// A thread's elements of its block's chunk; zeros beyond the end.
template <typename T>
__device__ void load_elements(float (&x)[kElements], const gpu::Chunk<Item<T>>& chunk) {
  const T* const source = chunk.item.x;
  const std::int64_t first = chunk.begin + 4 * threadIdx.x;
  if (gpu::are_quads(source) && chunk.end - chunk.begin == gpu::kChunk) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const auto quad = gpu::Quad<T>::load(source + first + q * 4 * gpu::kThreads);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[4 * q + j] = quad.values[j];
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    const std::int64_t i = chunk.begin + threadIdx.x + k * gpu::kThreads;
    x[k] = i < chunk.end ? gpu::load(source[i]) : 0.0f;
  }
}

__device__ int warp_maximum(int value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(gpu::kFullWarp, value, distance));
  }
  return value;
}

__device__ int warp_largest(const float (&x)[kElements]) {
  int largest = 0;
#pragma unroll
  for (int k = 0; k < kElements; ++k) largest = max(largest, gpu::bits_of_magnitude(x[k]));
  return warp_maximum(largest);
}

/// Adds the squares of the warp's elements to its words, and leaves zeros.
template <typename Squares>
__device__ void add_elements(Word* words, float (&x)[kElements]) {
  int largest = warp_largest(x);
  if (largest >= kBitsOfInfinity) {
    if (threadIdx.x % 32 == 0) ++words[largest > kBitsOfInfinity ? kNanWord : kInfinityWord];
    return;
  }
  for (; largest > 0; largest = warp_largest(x)) {
    const Squares squares(largest);
    if (!squares.add(words, x)) return;
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      if (!squares.is_too_small(x[k])) x[k] = 0.0f;
    }
  }
}

template <typename T, typename Squares>
__global__ void __launch_bounds__(gpu::kThreads)
    squares_kernel(const __grid_constant__ gpu::TensorList<Item<T>, gpu::kLongList> list,
                   Word* total) {
  TESSERA_SHARED(Word, words, [kWarps][kNormWords]);
  Word* const own = words[threadIdx.x / 32];
  if (threadIdx.x % 32 == 0) {
    for (int i = 0; i < kNormWords; ++i) own[i] = 0;
  }
  float x[kElements];
  load_elements(x, gpu::Chunk<Item<T>>::of_block(list));
  add_elements<Squares>(own, x);
  __syncthreads();
  if (threadIdx.x >= kNormWords) return;
  Word sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += words[warp][threadIdx.x];
  if (sum != 0) atomicAdd(total + threadIdx.x, sum);
}

/// One thread.
__global__ void __launch_bounds__(1)
    clip_kernel(float* factor, const std::int64_t* words, const float* loss,
                StepValue<ClipSettings> settings) {
  const ClipSettings s = gpu::current(settings);
  if (words[kNanWord] + words[kInfinityWord] > 0 || !isfinite(*loss)) {
    *factor = NAN;
    return;
  }
  // root_of_words of exact_sum.h
  std::int64_t carry = 0;
  double sum = 0.0;
  for (int i = 0; i < kSquareWords; ++i) {
    const std::int64_t digit = words[i] + carry;
    carry = digit >> 32;
    sum = sum * 0x1p-32 + static_cast<double>(digit & 0xffffffff);
  }
  const double root = sqrt(sum + static_cast<double>(carry) * 0x1p32) * 0x1p123;
  const double norm = root / s.loss_scale;
  const double clipped = s.max_norm > 0.0 && norm > s.max_norm ? s.max_norm / norm : 1.0;
  *factor = static_cast<float>(clipped / s.loss_scale);
}

}  // namespace

void sum_of_squares(Out words, std::span<const Tensor> tensors) {
  words.zero();
  if (tensors.empty()) return;
  auto* const total = reinterpret_cast<Word*>(words.data<std::int64_t>());
  gpu::visit(tensors.front().dtype(), [&](auto type) {
    using T = decltype(type);
    std::vector<Item<T>> items;
    for (const Tensor& tensor : tensors) items.push_back({tensor.data<T>(), tensor.numel()});
    gpu::launch_for_each_list<Item<T>, gpu::kLongList>(
        items,
        gpu::has_fast_f64() ? squares_kernel<T, F64Squares> : squares_kernel<T, IntegerSquares>,
        total);
  });
}

void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings) {
  const auto now = step_value(settings, [settings](const StepNumbers& numbers) {
    return ClipSettings{.max_norm = settings.max_norm, .loss_scale = numbers.loss_scale};
  });
  gpu::launch(clip_kernel, dim3(1), dim3(1), 0, gpu::stream(), factor.data<float>(),
              norm.words().data<std::int64_t>(), loss.data<float>(), now);
}

}  // namespace tessera::cuda
