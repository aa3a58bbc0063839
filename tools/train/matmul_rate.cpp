#include "tools/train/matmul_rate.h"

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "runtime/backends.h"
#include "runtime/category.h"
#include "runtime/cuda/device.h"
#include "runtime/random.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

/// Uniform values in [-1/2, 1/2): neither zeros, which flatter some machines, nor denormals.
Tensor noise(std::int64_t rows, std::int64_t columns, std::uint64_t stream) {
  const Tensor tensor = Tensor::empty({rows, columns}, DType::f32);
  const RandomStream random(0, stream);
  float* values = tensor.data<float>();
  parallel_for(tensor.numel(), std::int64_t{1} << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      values[i] = random.uniform(static_cast<std::uint64_t>(i)) - 0.5f;
    }
  });
  return tensor;
}

/// Fastest of `repeats` calls, in seconds.
double seconds_of(const MatmulShape& shape, int repeats) {
  const bool ta = shape.transpose_a == Transpose::yes;
  const bool tb = shape.transpose_b == Transpose::yes;
  const Tensor a = ta ? noise(shape.k, shape.m, 1) : noise(shape.m, shape.k, 1);
  const Tensor b = tb ? noise(shape.n, shape.k, 2) : noise(shape.k, shape.n, 2);
  const Tensor c = Tensor::zeros({shape.m, shape.n}, DType::f32);
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                static_cast<int>(shape.m), static_cast<int>(shape.n), static_cast<int>(shape.k),
                1.0f, a.data<float>(), static_cast<int>(a.size(1)), b.data<float>(),
                static_cast<int>(b.size(1)), 0.0f, c.data<float>(), static_cast<int>(shape.n));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (i > 0) fastest = std::min(fastest, elapsed.count());
  }
  return fastest;
}

/// Lets OpenBLAS thread its calls for a while; otherwise it runs each on the calling thread.
class OpenBlasThreads {
 public:
  explicit OpenBlasThreads(int threads) { openblas_set_num_threads(threads); }
  ~OpenBlasThreads() { openblas_set_num_threads(1); }
  OpenBlasThreads(const OpenBlasThreads&) = delete;
  OpenBlasThreads& operator=(const OpenBlasThreads&) = delete;
};

}  // namespace

double sgemm_rate(const std::vector<MatmulShape>& shapes, int threads, int repeats) {
  const CategoryScope category(Category::workspace);
  const OpenBlasThreads own_threading(threads);
  double flops = 0.0;
  double seconds = 0.0;
  for (const MatmulShape& shape : shapes) {
    flops += shape.flops();
    seconds += seconds_of(shape, repeats) * static_cast<double>(shape.count);
  }
  return flops / seconds;
}

std::optional<double> peak_matmul_rate(const Device& first, int ranks, DType dtype) {
  double sum = 0.0;
  if constexpr (kHasCuda) {
    const int count = cuda::device_count();
    for (int i = 0; i < std::min(ranks, count); ++i) {
      const auto properties = cuda::device_properties((first.index + i) % count);
      const std::optional<double> peak = cuda::peak_flops(properties, dtype);
      if (!peak) return std::nullopt;
      sum += *peak;
    }
  }
  return sum > 0.0 ? std::optional(sum) : std::nullopt;
}

}  // namespace tessera
