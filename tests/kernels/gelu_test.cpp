#include <catch2/catch.hpp>

#include "kernels/gelu/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

// The formula and its derivative as published, in double.
const double kRootTwoOverPi = std::sqrt(2.0 / std::acos(-1.0));

double gelu(double x, GeluForm form) {
  if (form == GeluForm::exact) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1.0 + std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x)));
}

double gelu_derivative(double x, GeluForm form) {
  if (form == GeluForm::exact) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) + 0.5 * kRootTwoOverPi * x * std::exp(-0.5 * x * x);
  }
  const double t = std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) +
         0.5 * x * (1.0 - t * t) * kRootTwoOverPi * (1.0 + 3.0 * 0.044715 * x * x);
}

/// n values evenly spread over [-12, 12], rounded to `dtype`.
Tensor sweep(std::int64_t n, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) values[i] = -12.0 + 24.0 * double(i) / double(n);
  return test::tensor_of(values, {n}, dtype);
}

/// The bound of the arithmetic's error (in f64 the reference's, where 1 + tanh cancels) plus the
/// storage's.
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 2e-13 : 2e-6 + test::unit_roundoff(dtype);
}

}  // namespace

TEST_CASE("gelu has the published values") {
  // Tabulated from the formula with 30 digits.
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const double epsilon = dtype == DType::f64 ? 1e-12 : 3e-7 + test::unit_roundoff(dtype);
    const Tensor x = test::tensor_of({0.0, 1.0, -1.0, 3.0}, {4}, dtype);
    const Tensor y = test::poisoned({4}, dtype);
    gelu_forward(y, x);
    const auto values = test::to_doubles(y);
    REQUIRE(values[0] == 0.0);
    REQUIRE(values[1] == Approx(0.8411919906082768).epsilon(epsilon));
    REQUIRE(values[2] == Approx(-0.15880800939172324).epsilon(epsilon));
    REQUIRE(values[3] == Approx(2.9963627).epsilon(epsilon + 1e-7));
    gelu_forward(y, x, GeluForm::exact);
    const auto exact = test::to_doubles(y);
    REQUIRE(exact[0] == 0.0);
    REQUIRE(exact[1] == Approx(0.8413447460685429).epsilon(epsilon));
    REQUIRE(exact[2] == Approx(-0.15865525393145705).epsilon(epsilon));
    REQUIRE(exact[3] == Approx(2.9959503059051097).epsilon(epsilon));
  }
}

TEST_CASE("gelu follows the formula over its whole range in every dtype") {
  const test::Rank rank;
  const GeluForm form = GENERATE(GeluForm::tanh, GeluForm::exact);
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t n : {0, 1, 37, 16 * 1024 + 3}) {
      const Tensor x = sweep(n, dtype), y = test::poisoned({n}, dtype);
      gelu_forward(y, x, form);
      auto expected = test::to_doubles(x);
      for (double& value : expected) value = gelu(value, form);
      REQUIRE(test::worst_error(test::to_doubles(y), expected, 1e-2) <= tolerance(dtype));
    }
  }
}

TEST_CASE("gelu_backward follows the derivative, in place or not") {
  const test::Rank rank;
  const GeluForm form = GENERATE(GeluForm::tanh, GeluForm::exact);
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t n : {0, 1, 37, 16 * 1024 + 3}) {
      const Tensor x = sweep(n, dtype), dy = test::normal_tensor({n}, dtype, "dy");
      const Tensor dx = test::poisoned({n}, dtype);
      gelu_backward(dx, dy, x, form);
      auto expected = test::to_doubles(x);
      const auto upstream = test::to_doubles(dy);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = upstream[i] * gelu_derivative(expected[i], form);
      }
      REQUIRE(test::worst_error(test::to_doubles(dx), expected, 1e-1) <= tolerance(dtype));
      gelu_backward(dy, dy, x, form);
      REQUIRE(test::same_bits(dy, dx));
    }
  }
}

TEST_CASE("gelu: the same bits wherever tensors begin, and under every schedule") {
  const GeluForm form = GENERATE(GeluForm::tanh, GeluForm::exact);
  for (const DType dtype : test::kFloating) {
    test::require_equal_under_every_schedule([&] {
      const Tensor x = sweep(1027, dtype), dy = test::normal_tensor({1027}, dtype, "dy");
      const Tensor y = test::poisoned({1027}, dtype), dx = test::poisoned({1027}, dtype);
      gelu_forward(y, x, form);
      gelu_backward(dx, dy, x, form);
      // Each tensor alone, and all together, at addresses that are not aligned for vectors.
      for (const int off : {1, 2, 4, 7}) {
        const auto placed = [&](const Tensor& tensor, int bit) {
          return off & bit ? test::unaligned(tensor) : tensor;
        };
        const Tensor z = placed(test::poisoned({1027}, dtype), 1);
        gelu_forward(z, placed(x, 2), form);
        REQUIRE(test::same_bits(z, y));
        const Tensor dz = placed(test::poisoned({1027}, dtype), 1);
        gelu_backward(dz, placed(dy, 2), placed(x, 4), form);
        REQUIRE(test::same_bits(dz, dx));
      }
      return std::pair(test::bytes_of(y), test::bytes_of(dx));
    });
  }
}

TEST_CASE("gelu keeps relative precision where 1 + tanh cancels") {
  const test::Rank rank;
  const Tensor x = Tensor::from(std::vector<float>{-4.0f, -5.0f, -6.0f}, {3});
  const Tensor y = test::poisoned({3}, DType::f32);
  gelu_forward(y, x);
  // x / (1 + e^(-2u)) in double: the same function without the cancellation.
  std::vector<double> expected;
  for (const double v : {-4.0, -5.0, -6.0}) {
    expected.push_back(v / (1.0 + std::exp(-2.0 * kRootTwoOverPi * (v + 0.044715 * v * v * v))));
  }
  REQUIRE(test::worst_error(test::to_doubles(y), expected, 0.0) < 1e-5);
  gelu_forward(y, x, GeluForm::exact);
  expected.clear();
  for (const double v : {-4.0, -5.0, -6.0}) expected.push_back(gelu(v, GeluForm::exact));
  REQUIRE(test::worst_error(test::to_doubles(y), expected, 0.0) < 1e-5);
}

TEST_CASE("gelu of large and special values") {
  const test::Rank rank;
  const Tensor x = Tensor::from(std::vector<float>{1e4f, -1e4f, 3e38f, -3e38f, NAN}, {5});
  const Tensor y = test::poisoned({5}, DType::f32);
  gelu_forward(y, x, GENERATE(GeluForm::tanh, GeluForm::exact));
  const auto values = y.to_vector<float>();
  // A GPU's reciprocal errs by one unit in the last place, also where the sigmoid is 1.
  constexpr double kUnit = 0x1p-23;
  REQUIRE(values[0] == Approx(1e4).epsilon(kUnit));
  REQUIRE(values[1] == 0.0f);
  REQUIRE(values[2] == Approx(3e38f).epsilon(kUnit));
  REQUIRE(values[3] == 0.0f);
  REQUIRE(std::isnan(values[4]));
}

TEST_CASE("gelu refuses arguments that do not fit together") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({2, 3}, DType::f32), y = Tensor::zeros({2, 3}, DType::f32);
  REQUIRE_THROWS_WITH(gelu_forward(y, x.reshape({3, 2})),
                      Catch::Contains("gelu_forward: y is f32 [2, 3] and x is f32 [3, 2]"));
  REQUIRE_THROWS_WITH(gelu_forward(x, x), Catch::Contains("y overlaps x"));
  REQUIRE_THROWS_WITH(gelu_backward(x, y, x), Catch::Contains("dx overlaps x"));
  REQUIRE_THROWS_WITH(gelu_backward(y, Tensor::zeros({2, 3}, DType::bf16), x),
                      Catch::Contains("dtypes must be equal"));
}

}  // namespace tessera
