// Dropout: y[i] = keep(i) ? x[i] / (1 - p) : 0, the mask made on the spot.
//
// Traffic: x read, y written (4 bytes an element in 16 bits). A mask would add one byte each way
// per element and a tensor kept for backward; the random bits cost about 12 instructions an element
// instead, which the memory's pace hides. A thread takes one 16-byte vector: 4 elements and one
// Philox block in f32, 8 elements and two blocks in 16 bits.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/philox.h"
#include "kernels/dropout/op.h"

namespace tessera::cuda {
namespace {

constexpr int kWords = 4;  // of a Philox block

struct Dropout {
  gpu::RandomWords random;
  float probability, scale;

  /// Elements 4 * block to 4 * block + 3.
  __device__ void apply(float (&x)[kWords], std::int64_t block) const {
    const uint4 bits = random.block(static_cast<std::uint64_t>(block));
    const unsigned words[kWords] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const bool dropped = gpu::RandomWords::to_uniform(words[w]) < probability;
      x[w] = dropped ? 0.0f : x[w] * scale;
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    dropout_kernel(T* y, const T* x, std::int64_t count, Dropout dropout, bool aligned) {
  constexpr int kWidth = gpu::Vector<T>::kSize;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
  const bool whole = aligned && first + kWidth <= count;
  gpu::Vector<T> vector;
  if (whole) vector = gpu::Vector<T>::load(x + first);
#pragma unroll
  for (int begin = 0; begin < kWidth; begin += kWords) {
    float values[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const std::int64_t i = first + begin + w;
      values[w] = whole ? vector.values[begin + w] : i < count ? gpu::load(x[i]) : 0.0f;
    }
    dropout.apply(values, (first + begin) / kWords);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const std::int64_t i = first + begin + w;
      vector.values[begin + w] = values[w];
      if (!whole && i < count) gpu::store(y[i], values[w]);
    }
  }
  if (whole) vector.store(y + first);
}

}  // namespace

void dropout(Out y, const Tensor& x, float probability, const RandomStream& random) {
  if (y.numel() == 0) return;
  const Dropout dropout{gpu::RandomWords(random), probability, 1 / (1 - probability)};
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
