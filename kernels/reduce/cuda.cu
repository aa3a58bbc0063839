// Reductions of a tensor to a number on the GPU: the tensor is read once, the result stays on the
// device.
//
//   x      | chunk 0 | chunk 1 | ... | chunk k |    a block each: thread t takes vectors t, t +
//   256, ... partials    p0        p1             pk         of its chunk, then the block combines
//   result  f(p0, p1, ..., pk)                      one block, in the same way
//
// Chunks have one size, so the order of combining is a function of the tensor's length alone. For
// max_abs and sum_of_squares, which are integer inside, order does not matter: they have the CPU's
// bits.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/reduce/op.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

using namespace gpu;

constexpr int kReducingThreads = 256;
constexpr std::int64_t kReducedChunk = 1 << 15;

// ---- What is combined. Zero elements change nothing, and Partial{} is the result of none.

/// The bits of |x|, read as an integer, are ordered as the values are, with NaN above infinity.
struct MaxAbs {
  using Partial = unsigned;
  __device__ Partial of(float x) const { return __float_as_uint(x) & 0x7fffffffu; }
  __device__ static Partial combine(Partial a, Partial b) { return a > b ? a : b; }
  __device__ static Partial from_lane(Partial value, int distance) {
    return __shfl_xor_sync(~0u, value, distance);
  }
};

/// In double, so that the length of the sum does not show in an f32 result.
struct Total {
  using Partial = double;
  __device__ Partial of(float x) const { return static_cast<double>(x); }
  __device__ static Partial combine(Partial a, Partial b) { return a + b; }
  __device__ static Partial from_lane(Partial value, int distance) {
    return __shfl_xor_sync(~0u, value, distance);
  }
};

/// The words of a fixed-point sum; both kInvalid if an element was not finite or too large.
struct Words {
  std::int64_t high = 0, low = 0;
};
constexpr int kLowBits = 30;
// Far below zero, so that adding valid words of other ranks does not hide it.
constexpr std::int64_t kInvalid = -(std::int64_t{1} << 62);

/// With scale = 2^(30 - exponent), (x * scale)^2 = (x * 2^-exponent)^2 * 2^60. A float has 24
/// significant bits and its square 48, so both products are exact in double.
struct SumOfSquares {
  using Partial = Words;
  double scale;

  __device__ Partial of(float x) const {
    const double scaled = fabs(static_cast<double>(x) * scale);
    if (!(scaled <= static_cast<double>(1 << kLowBits))) return {kInvalid, kInvalid};  // or NaN
    const auto square = static_cast<std::int64_t>(scaled * scaled);
    return {square >> kLowBits, square & ((std::int64_t{1} << kLowBits) - 1)};
  }
  __device__ static Partial combine(Partial a, Partial b) {
    if (a.high < 0 || b.high < 0) return {kInvalid, kInvalid};
    return {a.high + b.high, a.low + b.low};
  }
  __device__ static Partial from_lane(Partial value, int distance) {
    return {__shfl_xor_sync(~0u, value.high, distance), __shfl_xor_sync(~0u, value.low, distance)};
  }
};

// ---- How it is combined

template <typename Reduction>
__device__ typename Reduction::Partial combine_warp(typename Reduction::Partial value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = Reduction::combine(value, Reduction::from_lane(value, distance));
  }
  return value;
}

/// The threads' values combined; the first thread has the result.
template <typename Reduction>
__device__ typename Reduction::Partial combine_block(typename Reduction::Partial value) {
  using Partial = typename Reduction::Partial;
  constexpr int kWarps = kReducingThreads / 32;
  TESSERA_SHARED(Partial, of_warp, [kWarps]);
  value = combine_warp<Reduction>(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x >= 32) return value;
  return combine_warp<Reduction>(threadIdx.x < kWarps ? of_warp[threadIdx.x] : Partial{});
}

/// A vector of which `count` elements exist; the others are zero.
template <typename T>
__device__ Vector<T> load_some(const T* x, std::int64_t count) {
  Vector<T> vector;
#pragma unroll
  for (int j = 0; j < Vector<T>::kSize; ++j) vector.values[j] = j < count ? load(x[j]) : 0.0f;
  return vector;
}

template <typename Reduction, typename T>
__global__ void __launch_bounds__(kReducingThreads)
    chunk_kernel(typename Reduction::Partial* partials, Reduction reduction, const T* x,
                 std::int64_t count, bool aligned) {
  constexpr int kWidth = Vector<T>::kSize;
  const std::int64_t begin = blockIdx.x * kReducedChunk;
  const std::int64_t end = min(begin + kReducedChunk, count);
  typename Reduction::Partial total{};
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x * kWidth; i < end; i += kReducingThreads * kWidth) {
    const bool whole = aligned && i + kWidth <= end;
    const auto vector = whole ? Vector<T>::load(x + i) : load_some(x + i, end - i);
    for (const float value : vector.values) total = Reduction::combine(total, reduction.of(value));
  }
  total = combine_block<Reduction>(total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <typename Reduction, typename Write>
__global__ void __launch_bounds__(kReducingThreads)
    result_kernel(Write write, const typename Reduction::Partial* partials, std::int64_t count) {
  typename Reduction::Partial total{};
  for (std::int64_t i = threadIdx.x; i < count; i += kReducingThreads) {
    total = Reduction::combine(total, partials[i]);
  }
  total = combine_block<Reduction>(total);
  if (threadIdx.x == 0) write(total);
}

/// Combines all elements of x and calls write(result) on the device.
template <typename Reduction, typename Write>
void reduce(const Tensor& x, Reduction reduction, Write write) {
  using Partial = typename Reduction::Partial;
  const std::int64_t chunks = (x.numel() + kReducedChunk - 1) / kReducedChunk;
  const CategoryScope scope(Category::workspace);
  const Tensor memory =
      Tensor::empty({chunks * static_cast<std::int64_t>(sizeof(Partial))}, DType::u8);
  Partial* const partials = reinterpret_cast<Partial*>(memory.raw());
  if (chunks > 0) {
    visit(x.dtype(), [&](auto type) {
      using T = decltype(type);
      const T* const elements = x.data<T>();
      launch(chunk_kernel<Reduction, T>, dim3(static_cast<unsigned>(chunks)),
             dim3(kReducingThreads), 0, stream(), partials, reduction, elements, x.numel(),
             is_vectorizable(elements, Vector<T>::kSize));
    });
  }
  launch(result_kernel<Reduction, Write>, dim3(1), dim3(kReducingThreads), 0, stream(), write,
         partials, chunks);
}

struct WriteBits {
  float* result;
  __device__ void operator()(unsigned bits) const { *result = __uint_as_float(bits); }
};
struct WriteRounded {
  float* result;
  __device__ void operator()(double total) const { *result = static_cast<float>(total); }
};
struct WriteWords {
  std::int64_t* result;
  bool accumulate;
  __device__ void operator()(const Words& total) const {
    const Words before = accumulate ? Words{result[0], result[1]} : Words{};
    const Words sum = SumOfSquares::combine(before, total);
    result[0] = sum.high;
    result[1] = sum.low;
  }
};

}  // namespace

void max_abs(Out result, const Tensor& x) {
  reduce(x, MaxAbs{}, WriteBits{result.data<float>()});
}

void sum(Out result, const Tensor& x) {
  reduce(x, Total{}, WriteRounded{result.data<float>()});
}

void sum_of_squares(Out result, const Tensor& x, int exponent, Accumulate accumulate) {
  const double scale = std::ldexp(1.0, kLowBits - exponent);
  reduce(x, SumOfSquares{scale},
         WriteWords{result.data<std::int64_t>(), accumulate == Accumulate::yes});
}

}  // namespace tessera::cuda
