// The sum of a tensor on a GPU: the tensor is read once, the result stays on the device.
//
//   x         | chunk 0 | chunk 1 | ... | chunk k |   one block each: thread t adds vectors
//   partials      p0        p1             pk         t, t + 256, ..., then the block adds up
//   result             p0 + p1 + ... + pk             one block, in the same way
//
// Chunks have a fixed size, so the order of additions depends on the tensor's length alone.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/reduce/op.h"
#include "runtime/category.h"
#include "runtime/integer.h"

namespace tessera::cuda {
namespace {

using namespace gpu;

constexpr int kReducingThreads = 256;
constexpr std::int64_t kReducedChunk = 1 << 15;

// Sums are in double, so that an f32 result does not lose digits to the length of the sum.

__device__ double warp_sum(double value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

/// The sum of the threads' values, in the first warp's threads.
__device__ double block_sum(double value) {
  constexpr int kWarps = kReducingThreads / 32;
  TESSERA_SHARED(double, of_warp, [kWarps]);
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x >= 32) return value;
  return warp_sum(threadIdx.x < kWarps ? of_warp[threadIdx.x] : 0.0);
}

/// A vector of `count` existing elements followed by zeros.
template <typename T>
__device__ Vector<T> load_some(const T* x, std::int64_t count) {
  Vector<T> vector;
#pragma unroll
  for (int j = 0; j < Vector<T>::kSize; ++j) vector.values[j] = j < count ? load(x[j]) : 0.0f;
  return vector;
}

template <typename T>
__global__ void __launch_bounds__(kReducingThreads)
    chunk_kernel(double* partials, const T* x, std::int64_t count, bool aligned) {
  constexpr int kWidth = Vector<T>::kSize;
  const std::int64_t begin = blockIdx.x * kReducedChunk;
  const std::int64_t end = min(begin + kReducedChunk, count);
  double total = 0.0;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x * kWidth; i < end; i += kReducingThreads * kWidth) {
    const bool whole = aligned && i + kWidth <= end;
    const auto vector = whole ? Vector<T>::load(x + i) : load_some(x + i, end - i);
    for (const float value : vector.values) total += static_cast<double>(value);
  }
  total = block_sum(total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kReducingThreads)
    result_kernel(float* result, const double* partials, std::int64_t count) {
  double total = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += kReducingThreads) total += partials[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *result = static_cast<float>(total);
}

}  // namespace

void sum(Out result, const Tensor& x) {
  const std::int64_t chunks = ceil_div(x.numel(), kReducedChunk);
  const CategoryScope scope(Category::workspace);
  const Tensor memory = Tensor::empty({chunks * std::int64_t{sizeof(double)}}, DType::u8);
  auto* const partials = reinterpret_cast<double*>(memory.raw());
  if (chunks > 0) {
    visit(x.dtype(), [&](auto type) {
      using T = decltype(type);
      const T* const elements = x.data<T>();
      launch(chunk_kernel<T>, dim3(static_cast<unsigned>(chunks)), dim3(kReducingThreads), 0,
             stream(), partials, elements, x.numel(), is_vectorizable(elements, Vector<T>::kSize));
    });
  }
  launch(result_kernel, dim3(1), dim3(kReducingThreads), 0, stream(), result.data<float>(),
         partials, chunks);
}

}  // namespace tessera::cuda
