// Dropout: y[i] = keep(i) ? x[i] / (1 - p) : 0, with the mask computed, not stored.
//
// Traffic: x read, y written (4 bytes an element in 16 bits). A stored mask would add one byte each
// way per element, and a tensor saved for backward. The random bits cost about 11 instructions an
// element instead, which the time for memory hides. A thread takes one 16-byte vector: 4 elements
// and one Philox block in f32, 8 elements and two blocks in 16 bits.
#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/philox.h"
#include "kernels/dropout/op.h"

namespace tessera::cuda {
namespace {

constexpr int kWords = 4;  // in a Philox block

struct Dropout {
  gpu::RandomWords random;
  unsigned threshold;  // words below it drop their element
  float scale;
  std::int64_t first;  // of x's elements in the stream

  /// The upper 24 bits of a word are its uniform number, so "number < p" compares integers.
  Dropout(const RandomStream& stream, float probability, std::int64_t first_element)
      : random(stream),
        threshold(static_cast<unsigned>(std::ceil(std::ldexp(probability, 24))) << 8),
        scale(1 / (1 - probability)),
        first(first_element) {}

  __device__ float of(float x, unsigned word) const { return word < threshold ? 0.0f : x * scale; }

  __device__ float of(float x, std::int64_t i) const {
    const uint4 words = random.block(static_cast<std::uint64_t>(first + i) / kWords);
    const auto word = i % kWords;
    return of(x, word == 0 ? words.x : word == 1 ? words.y : word == 2 ? words.z : words.w);
  }
  template <typename T>
  __device__ void apply(gpu::Vector<T>& vector, std::int64_t at) const {
#pragma unroll
    for (int i = 0; i < gpu::Vector<T>::kSize; i += kWords) {
      const uint4 words = random.block(static_cast<std::uint64_t>(first + at + i) / kWords);
      vector.values[i] = of(vector.values[i], words.x);
      vector.values[i + 1] = of(vector.values[i + 1], words.y);
      vector.values[i + 2] = of(vector.values[i + 2], words.z);
      vector.values[i + 3] = of(vector.values[i + 3], words.w);
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    dropout_kernel(T* y, const T* x, std::int64_t count, Dropout dropout, bool aligned) {
  constexpr int kWidth = gpu::Vector<T>::kSize;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
  if (aligned && first + kWidth <= count) {
    auto vector = gpu::Vector<T>::load(x + first);
    dropout.apply(vector, first);
    vector.store(y + first);
  } else {
#pragma unroll 1
    for (std::int64_t i = first; i < count && i < first + kWidth; ++i) {
      gpu::store(y[i], dropout.of(gpu::load(x[i]), i));
    }
  }
}

}  // namespace

void dropout(Out y, const Tensor& x, float probability, const RandomStream& random,
             std::int64_t first) {
  if (y.numel() == 0) return;
  const Dropout dropout(random, probability, first);
  gpu::visit(y.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const to = y.data<T>();
    const T* const from = x.data<T>();
    const bool aligned = gpu::is_vectorizable(to, 0) && gpu::is_vectorizable(from, 0);
    const unsigned blocks =
        gpu::blocks_for(y.numel(), gpu::kThreads * gpu::Vector<T>::kSize, INT32_MAX);
    gpu::launch(dropout_kernel<T>, dim3(blocks), dim3(gpu::kThreads), 0, gpu::stream(), to, from,
                y.numel(), dropout, aligned);
  });
}

}  // namespace tessera::cuda
