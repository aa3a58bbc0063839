// The sum of squares in one pass over the gradient, 4 bytes (2 in 16 bits) read per element.
//
// A block takes a chunk of 8192 elements of one tensor (kernels/cuda/multi_tensor.h), a thread 32 of
// them into its registers. A warp sums the squares of its 1024 elements in fixed point, relative to
// the largest of them, and adds the sum to words of its own. At the end the block adds the words of
// its warps to the total by one integer atomic per word that is not zero, about five. Sums of
// integers are the same in any order, so the order in which blocks arrive does not matter.
//
// A thread's sums, with the warp's largest magnitude below 2^e: x is a whole number of 2^(e - 56),
//
//   |x| = 2^(e - 56) (2^28 high + low)                          high and low below 2^28
//   x^2 = 2^(2 e - 112) (2^56 high^2 + 2^29 high low + low^2)   three integer products, three sums
//
// unless |x| is below 2^(e - 33). Such elements wait for another round, relative to the largest of
// them. That is rare: a gradient 2^32 times smaller than another of its warp. A number in 16 bits has
// so few significant bits that 28 bits and one product do: for bf16 down to 2^(e - 21).
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

// add_to_words of exact_sum.h.
__device__ void add_value(Word* words, Uint128 value, int position) {
  if (position < 0) {
    value >>= -position;
    position = 0;
  }
  const int shift = position % 32;
  Word* word = words + position / 32;
  *word += static_cast<unsigned>(value << shift);
  for (value >>= 32 - shift; value != 0; value >>= 32) *++word += static_cast<unsigned>(value);
}

/// Significant bits of a number.
template <typename T>
constexpr int kSignificant = std::is_same_v<T, float>     ? 24
                             : std::is_same_v<T, float16> ? 11
                                                          : 8;

/// Adds the squares of the warp's magnitudes up to `largest`, unless they are 2^kRange times
/// smaller, to the warp's words. Returns the largest magnitude that is.
template <typename T>
__device__ int add_squares(Word* words, const float (&x)[kElements], int largest) {
  constexpr int kLowBits = 28, kBits = kSignificant<T>;
  constexpr bool one_product = kBits < kLowBits / 2;
  constexpr int kRange = (one_product ? 1 : 2) * kLowBits - kBits;
  // Biased exponents. Denormal numbers have that of the smallest normal number.
  const int top = max(largest >> 23, 1);
  Word high_high = 0, high_low = 0, low_low = 0;
  int below = 0;
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    const int bits = bits_of_magnitude(x[k]);
    const int shift = top - max(bits >> 23, 1);  // below 0: an earlier round has counted it
    const unsigned whole = (bits & 0x7fffff) | (bits > 0x7fffff ? 0x800000 : 0);
    const unsigned counted = static_cast<unsigned>(shift) <= kRange ? whole >> (24 - kBits) : 0;
    below = max(below, shift > kRange ? bits : 0);
    if constexpr (one_product) {
      const unsigned fixed = counted << kRange >> (shift & 31);
      high_high += std::uint64_t{fixed} * fixed;
    } else {
      const std::uint64_t fixed = std::uint64_t{counted} << kRange >> (shift & 63);
      const auto high = static_cast<unsigned>(fixed >> kLowBits);
      const unsigned low = static_cast<unsigned>(fixed) & ((1u << kLowBits) - 1);
      high_high += std::uint64_t{high} * high;
      high_low += std::uint64_t{high} * low;
      low_low += std::uint64_t{low} * low;
    }
  }
  Uint128 sum = high_high;
  if constexpr (!one_product) {
    sum = (sum << (2 * kLowBits)) + (static_cast<Uint128>(high_low) << (kLowBits + 1)) + low_low;
  }
  sum = warp_sum(sum);
  // The last bit of `counted` is 2^(top - 126 - kBits) at shift 0, and `fixed` has kRange more.
  if (threadIdx.x % 32 == 0) add_value(words, sum, 2 * (top - 126 - kBits - kRange) - kLowestBit);
  return warp_maximum(below);
}

/// Adds the squares of the warp's elements to its words.
template <typename T>
__device__ void add_elements(Word* words, const float (&x)[kElements]) {
  int largest = 0;
#pragma unroll
  for (int k = 0; k < kElements; ++k) largest = max(largest, bits_of_magnitude(x[k]));
  largest = warp_maximum(largest);
  if (largest >= kBitsOfInfinity) {
    if (threadIdx.x % 32 == 0) ++words[largest > kBitsOfInfinity ? kNanWord : kInfinityWord];
    return;
  }
  while (largest > 0) largest = add_squares<T>(words, x, largest);
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
  add_elements<T>(own, x);
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
