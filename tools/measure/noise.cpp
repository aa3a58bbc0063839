#include "tools/measure/noise.h"

#include <algorithm>

#include "kernels/cast/op.h"
#include "runtime/random.h"

namespace tessera {
namespace {

constexpr std::int64_t kPeriod = std::int64_t{1} << 20;

const std::vector<float>& pattern() {
  static const std::vector<float> values = [] {
    const RandomStream random(0, "noise");
    std::vector<float> drawn(kPeriod);
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = random.uniform(i) - 0.5f;
    return drawn;
  }();
  return values;
}

}  // namespace

Tensor noise(const Shape& shape, DType dtype) {
  const std::int64_t count = shape.numel();
  const Tensor all = Tensor::empty(shape, dtype);
  const Tensor flat = all.reshape({count});
  std::int64_t filled = std::min(count, kPeriod);
  const std::vector<float> first(pattern().begin(), pattern().begin() + filled);
  cast(flat.slice(0, filled), Tensor::from(first, {filled}));
  while (filled < count) {
    const std::int64_t next = std::min(filled, count - filled);
    flat.slice(filled, filled + next).copy_from(flat.slice(0, next));
    filled += next;
  }
  return all;
}

MatmulOperands operands_of(const MatmulShape& s, DType dtype, DType dtype_of_c) {
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  return {.a = noise(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, dtype),
          .b = noise(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, dtype),
          .c = Tensor::zeros({s.m, s.n}, dtype_of_c)};
}

}  // namespace tessera
