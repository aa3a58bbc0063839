// 8-bit factors for the tests of products.
#pragma once

#include <string>

#include "kernels/fp8/op.h"
#include "kernels/linear/factor.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

/// A product's error: one rounding to bf16. Tensor cores of Hopper keep about 14 bits of a sum.
inline constexpr double kFp8Bound = 0x1p-8;

/// Normal numbers, named `name`, times `scale`.
inline Factor fp8_factor(const Shape& shape, DType format, const std::string& name, double scale) {
  const auto number = [](double value) { return Tensor::full({1}, DType::f32, value); };
  const Tensor x = normal_tensor(shape, DType::bf16, name), y = Tensor::zeros(shape, format);
  fp8_quantize(y, {}, x, number(scale), number(0.0));
  return {y, number(1 / scale)};
}

}  // namespace tessera::test
