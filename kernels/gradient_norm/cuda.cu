// The sum of squares in one pass over the gradient, 4 bytes (2 in 16 bits) read per element.
//
// A block takes a chunk of 8192 elements of one tensor (kernels/cuda/multi_tensor.h), a thread 32 of
// them into its registers. A warp sums the squares of its 1024 elements in fixed point, relative to
// the largest of them, and adds the sum to words of its own. At the end the block adds the words of
// its warps to the total by one integer atomic per word that is not zero, about five. Sums of
// integers are the same in any order, so the order in which blocks arrive does not matter.
//
// A thread's sums, with the warp's largest magnitude below 2^e: x is a whole number of 2^(e - 44),
//
//   x = 2^(e - 44) (2^22 high + low)                             |high| up to 2^22, |low| up to 2^21
//   x^2 = 2^(2 e - 88) (2^44 high^2 + 2^23 high low + low^2)     three integer products, three sums
//
// unless |x| is below 2^(e - 21). Such elements wait for another round, relative to the largest of
// them. That is rare: a gradient two million times smaller than another of its warp.
//
// The two numbers come from additions of floats. 1.5 * 2^23 + y rounds a float y of at most 2^22 to a
// whole number, which then lies in the low bits of the sum. The rest of y, times 2^22, gives the other
// number in the same way. Shifts of 64 bits would take more instructions.
#include "kernels/cuda/multi_tensor.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/step_value.h"
#include "kernels/gradient_norm/exact_sum.h"
#include "kernels/gradient_norm/op.h"

namespace tessera::cuda {
namespace {

using Word = unsigned long long;

constexpr int kQuads = gpu::kChunk / (4 * gpu::kThreads);  // of a thread
constexpr int kElements = 4 * kQuads;
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

// The bits of |x| are ordered as the values are, with NaN above infinity.
__device__ int bits_of_magnitude(float x) {
  return static_cast<int>(__float_as_uint(x) & 0x7fffffffu);
}

__device__ int warp_maximum(int value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(gpu::kFullWarp, value, distance));
  }
  return value;
}

__device__ Uint128 warp_sum(Uint128 value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Word high = __shfl_xor_sync(gpu::kFullWarp, static_cast<Word>(value >> 64), distance);
    const Word low = __shfl_xor_sync(gpu::kFullWarp, static_cast<Word>(value), distance);
    value += static_cast<Uint128>(high) << 64 | low;
  }
  return value;
}

// add_to_words of exact_sum.h, for positions from 0 on.
__device__ void add_value(Word* words, Uint128 value, int position) {
  const int shift = position % 32;
  Word* word = words + position / 32;
  *word += static_cast<unsigned>(value << shift);
  for (value >>= 32 - shift; value != 0; value >>= 32) *++word += static_cast<unsigned>(value);
}

/// A float's whole part and the rest of a float, in [-1/2, 1/2].
struct Split {
  int whole;
  float rest;

  /// Splits x * scale, which is at most 2^22.
  __device__ Split(float x, float scale) {
    constexpr float kRounds = 0x1.8p23f;  // floats of this size are whole numbers
    const float sum = fmaf(x, scale, kRounds);
    whole = static_cast<int>(__float_as_uint(sum) - __float_as_uint(kRounds));
    rest = fmaf(x, scale, kRounds - sum);
  }
};

/// Magnitudes as bits, relative to the largest of a warp.
struct Range {
  int top;       // the largest is below 2^(top - 126)
  int smallest;  // the smallest that is a whole number of 2^(top - 170), but for 0

  explicit __device__ Range(int largest) {
    constexpr int kLowest = 21;  // all floats below 2^-105 are whole numbers of 2^-149
    top = max(largest >> 23, kLowest);
    smallest = top == kLowest ? 1 : (top - 20) << 23;
  }
  /// Brings the largest below 2^22.
  __device__ float scale() const { return __uint_as_float((275u - top) << 23); }
  /// The bit of the total that a sum of squares counts.
  __device__ int lowest_bit() const { return 2 * (top - 170) - kLowestBit; }
  /// Whether the magnitude is not 0, and too small.
  __device__ bool is_too_small(int bits) const {
    return static_cast<unsigned>(bits - 1) < static_cast<unsigned>(smallest - 1);
  }
};

__device__ int warp_largest(const float (&x)[kElements]) {
  int largest = 0;
#pragma unroll
  for (int k = 0; k < kElements; ++k) largest = max(largest, bits_of_magnitude(x[k]));
  return warp_maximum(largest);
}

/// Adds the squares of the warp's elements in a range to the warp's words. Returns whether there are
/// smaller ones.
__device__ bool add_squares(Word* words, const float (&x)[kElements], const Range& range) {
  const float scale = range.scale();
  std::int64_t high_high = 0, high_low = 0, low_low = 0;
  bool smaller = false;
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    const bool waits = range.is_too_small(bits_of_magnitude(x[k]));
    smaller |= waits;
    const Split high(waits ? 0.0f : x[k], scale), low(high.rest, 0x1p22f);
    high_high += std::int64_t{high.whole} * high.whole;
    high_low += std::int64_t{high.whole} * low.whole;
    low_low += std::int64_t{low.whole} * low.whole;
  }
  const auto shifted = [](std::int64_t sum, int bits) { return static_cast<Uint128>(sum) << bits; };
  const Uint128 sum = warp_sum(shifted(high_high, 44) + shifted(high_low, 23) + low_low);
  if (threadIdx.x % 32 == 0) add_value(words, sum, range.lowest_bit());
  return __any_sync(gpu::kFullWarp, smaller);
}

/// Adds the squares of the warp's elements to its words, and leaves zeros.
__device__ void add_elements(Word* words, float (&x)[kElements]) {
  int largest = warp_largest(x);
  if (largest >= kBitsOfInfinity) {
    if (threadIdx.x % 32 == 0) ++words[largest > kBitsOfInfinity ? kNanWord : kInfinityWord];
    return;
  }
  for (; largest > 0; largest = warp_largest(x)) {
    const Range range(largest);
    if (!add_squares(words, x, range)) return;
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      if (!range.is_too_small(bits_of_magnitude(x[k]))) x[k] = 0.0f;
    }
  }
}

template <typename T>
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
  add_elements(own, x);
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
    gpu::launch_for_each_list<Item<T>, gpu::kLongList>(items, squares_kernel<T>, total);
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
