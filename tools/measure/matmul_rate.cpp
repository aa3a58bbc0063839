#include "tools/measure/matmul_rate.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include "kernels/matmul/op.h"
#include "kernels/matmul/openblas_library.h"
#include "runtime/backends.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "runtime/cuda/device.h"
#include "runtime/profiler.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

/// Operations of all products over their times.
double rate_of(const std::vector<MatmulShape>& shapes, DType dtype, int repeats,
               const std::function<void(const MatmulOperands&, const MatmulShape&)>& multiply) {
  const CategoryScope category(Category::workspace);
  double flops = 0.0;
  double seconds = 0.0;
  for (const MatmulShape& shape : shapes) {
    const MatmulOperands operands = operands_of(shape, dtype, dtype);
    double fastest_ms = std::numeric_limits<double>::infinity();
    multiply(operands, shape);
    for (int i = 0; i < repeats; ++i) {
      const TimePoint begin = TimePoint::now();
      multiply(operands, shape);
      fastest_ms = std::min(fastest_ms, milliseconds_between(begin, TimePoint::now()));
    }
    flops += shape.flops();
    seconds += 1e-3 * fastest_ms * static_cast<double>(shape.count);
  }
  return flops / seconds;
}

}  // namespace

OpenBlasThreads::OpenBlasThreads(int threads) {
  cpu::openblas().set_num_threads(threads);
}

OpenBlasThreads::~OpenBlasThreads() {
  cpu::openblas().set_num_threads(1);
}

void openblas_product(const MatmulOperands& operands, const MatmulShape& shape) {
  const auto& [a, b, c] = operands;
  const auto layout = [](Transpose t) {
    return t == Transpose::yes ? cpu::kTransposed : cpu::kPlain;
  };
  const auto size = [](std::int64_t extent) { return static_cast<int>(extent); };
  cpu::openblas().sgemm(cpu::kRowMajor, layout(shape.transpose_a), layout(shape.transpose_b),
                        size(shape.m), size(shape.n), size(shape.k), 1.0f, a.data<float>(),
                        size(a.size(1)), b.data<float>(), size(b.size(1)), 0.0f, c.data<float>(),
                        size(shape.n));
}

double matmul_rate(const std::vector<MatmulShape>& shapes, DType dtype, int threads, int repeats) {
  if (context().device().is_cpu()) {
    const OpenBlasThreads own_threading(threads);
    return rate_of(shapes, DType::f32, repeats, openblas_product);
  }
  return rate_of(shapes, dtype, repeats,
                 [](const MatmulOperands& operands, const MatmulShape& shape) {
                   const auto& [a, b, c] = operands;
                   matmul(c, a, b, shape.transpose_a, shape.transpose_b);
                 });
}

int gpus_of(const Device& first, int ranks) {
  if constexpr (kHasCuda) {
    if (!first.is_cpu()) return std::min(ranks, cuda::device_count());
  }
  return 0;
}

std::optional<double> peak_matmul_rate(const Device& first, int ranks, DType dtype) {
  double sum = 0.0;
  if constexpr (kHasCuda) {
    for (int i = 0; i < gpus_of(first, ranks); ++i) {
      const auto properties = cuda::device_properties((first.index + i) % cuda::device_count());
      const std::optional<double> peak = cuda::peak_flops(properties, dtype);
      if (!peak) return std::nullopt;
      sum += *peak;
    }
  }
  return sum > 0.0 ? std::optional(sum) : std::nullopt;
}

void wait_for_openblas_threads() {
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
}

}  // namespace tessera
