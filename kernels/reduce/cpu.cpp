#include "kernels/cpu/lanes.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/reduce/op.h"
#include "runtime/category.h"

namespace tessera::cpu {
namespace {

/// Elements per partial sum.
constexpr std::int64_t kChunk = 1 << 16;

// In double, so that an f32 result does not lose digits to the length of the sum.
template <typename T>
double chunk_sum(const T* __restrict__ x, std::int64_t count) {
  return sum_of<double>(count, [&](std::int64_t i) { return static_cast<double>(load(x[i])); });
}

}  // namespace

void sum(Out result, const Tensor& x) {
  const CategoryScope category(Category::workspace);
  const Tensor partials = Tensor::empty_on_host({chunk_count(x.numel(), kChunk)}, DType::f64);
  auto* const sums = partials.data<double>();
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* elements = x.data<T>();
    parallel_for(x.numel(), kChunk, [=](std::int64_t begin, std::int64_t end) {
      sums[begin / kChunk] = chunk_sum(elements + begin, end - begin);
    });
    on_one_thread([&] {
      double total = 0.0;
      for (std::int64_t i = 0; i < partials.numel(); ++i) total += sums[i];
      *result.data<compute_t<T>>() = static_cast<compute_t<T>>(total);
    });
  });
}

}  // namespace tessera::cpu
