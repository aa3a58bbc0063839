// Products of 8-bit numbers with the sums of Hopper's tensor cores.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/fp8/op.h"
#include "kernels/grouped_matmul/factor.h"
#include "runtime/emulation/device/arithmetic.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

constexpr std::int64_t kDepth = 512, kWidth = 16;

Factor factor(const std::string& name) {
  const Tensor x = test::normal_tensor({kDepth, kWidth}, DType::bf16, name);
  const Tensor one = Tensor::full({1}, DType::f32, 1.0), y = Tensor::zeros(x.shape(), DType::e4m3);
  fp8_quantize(y, {}, x, one, Tensor::zeros({1}, DType::f32));
  return {y, one};
}

/// The largest error of a weight's gradient, over the sum of its terms' magnitudes.
double error_of_sums(bool narrow) {
  emulation::DeviceOptions options = emulation::device_options();
  options.narrow_sums = narrow;
  const emulation::DeviceOptionsGuard guard(options);
  const test::Rank rank;
  const Factor x = factor("x"), dy = factor("dy");
  const Tensor dweight = Tensor::zeros({kWidth, kWidth}, DType::f32);
  REQUIRE(cuda::fp8_product(dweight, dy, Transpose::yes, x, Transpose::no, {}, {}));
  const auto found = dweight.to_vector<float>();
  const std::vector<double> a = test::to_doubles(expanded(dy)), b = test::to_doubles(expanded(x));
  double largest = 0.0;
  for (std::size_t i = 0; i < kWidth; ++i) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      double sum = 0.0, magnitudes = 0.0;
      for (std::size_t k = 0; k < kDepth; ++k) {
        const double term = a[k * kWidth + i] * b[k * kWidth + j];
        sum += term;
        magnitudes += std::abs(term);
      }
      largest = std::max(largest, std::abs(found[i * kWidth + j] - sum) / magnitudes);
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("8-bit products keep 14 bits of a sum only if the emulated GPU's options say so") {
  // Each of 33 terms of a step loses less than 2^-13 of the largest; a sum has four steps before it is added in f32.
  CHECK(error_of_sums(false) < 1e-6);
  const double narrow = error_of_sums(true);
  CHECK(narrow > 1e-5);
  CHECK(narrow < 4 * 33 * 0x1p-13);
}

TEST_CASE("8-bit grouped products add the sums of 128 depths in f32") {
  // 2^16, and ones behind the first 128 depths, which are too small for 14 bits of a sum that has 2^16.
  constexpr std::int64_t kDepths = 128 + 1024, kColumns = 8;
  const test::Rank rank;
  const Tensor ones = Tensor::full({1}, DType::f32, 1.0);
  const auto factor_of = [&](const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()), 1.0f);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t depth = i % kDepths;
      if (depth < 128) values[i] = depth == 0 ? 256.0f : 0.0f;
    }
    const Tensor y = Tensor::zeros(shape, DType::e4m3);
    fp8_quantize(y, {}, Tensor::from(values, shape), ones, Tensor::zeros({1}, DType::f32));
    return Factor(y, ones);
  };
  const Factor x = factor_of({3, kDepths}), weight = factor_of({1, kColumns, kDepths});
  const Tensor y = Tensor::zeros({3, kColumns}, DType::bf16);
  emulation::set_arithmetic(emulation::Arithmetic::approximate);
  const bool done = cuda::fp8_grouped_matmul(
      {}, y, x, weight, Tensor::from(std::vector<std::int32_t>{0, 3}, {2}), Transpose::yes);
  const std::vector<double> found = test::to_doubles(y);
  emulation::set_arithmetic(emulation::Arithmetic::exact);
  REQUIRE(done);
  CHECK(found == std::vector<double>(3 * kColumns, 65536.0 + 1024.0));
}

}  // namespace tessera
