#include "kernels/round_sum/op.h"

#include <catch2/catch.hpp>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::poisoned;
using test::same_bits;
using test::to_doubles;

/// Inputs, and poisoned memory for y. `bias` and `residual` are undefined where they are not wanted.
struct Case {
  Tensor y, sums, bias, residual;

  Case(const Shape& shape, DType dtype, bool with_bias, bool with_residual)
      : y(poisoned(shape, dtype)), sums(normal_tensor(shape, statistics_dtype(dtype), "sums")) {
    if (with_bias) bias = normal_tensor({shape[-1]}, dtype, "bias");
    if (with_residual) residual = normal_tensor(shape, dtype, "residual");
  }

  void run() const { round_sum(y, sums, bias, residual); }

  /// residual + (sums + bias) in Real.
  template <typename Real>
  std::vector<double> expected() const {
    const auto values = to_doubles(sums);
    const auto b = bias.defined() ? to_doubles(bias) : std::vector<double>();
    const auto r = residual.defined() ? to_doubles(residual) : std::vector<double>();
    std::vector<double> result;
    for (std::size_t i = 0; i < values.size(); ++i) {
      Real value = static_cast<Real>(values[i]);
      if (!b.empty()) value += static_cast<Real>(b[i % b.size()]);
      if (!r.empty()) value += static_cast<Real>(r[i]);
      result.push_back(static_cast<double>(value));
    }
    return result;
  }
};

// One element; rows that no vector divides; several rows to a chunk and several chunks; no rows; no
// columns; one row without a dimension for it.
const Shape kShapes[] = {{1, 1}, {3, 5}, {2, 65, 33}, {200, 1030}, {0, 7}, {7, 0}, {9}};

/// Calls f(case) for every dtype and shape, with and without a bias and a residual.
template <typename F>
void for_every_case(const F& f) {
  for (const DType dtype : test::kFloating) {
    for (const Shape& shape : kShapes) {
      for (const bool bias : {false, true}) {
        for (const bool residual : {false, true}) {
          CAPTURE(name_of(dtype), to_string(shape), bias, residual);
          f(Case(shape, dtype, bias, residual));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("round_sum adds the bias to every row, then the residual") {
  const test::Rank rank;
  for_every_case([](const Case& c) {
    c.run();
    // Two additions of sums below 16, then one rounding.
    const double bound = test::unit_roundoff(c.y.dtype()) +
                         16.0 * test::unit_roundoff(statistics_dtype(c.y.dtype()));
    CHECK(test::worst_error(to_doubles(c.y), c.expected<double>(), 1.0) <= bound);
  });
}

// The order of additions is part of the contract: without an axis, products add in the same order.
TEST_CASE("round_sum has the bits of sums in f32 that are rounded at the end") {
  const test::Rank rank;
  for_every_case([](const Case& c) {
    c.run();
    const bool wide = c.y.dtype() == DType::f64;
    const auto expected = wide ? c.expected<double>() : c.expected<float>();
    CHECK(same_bits(c.y, test::tensor_of(expected, c.y.shape(), c.y.dtype())));
  });
}

// u is half a unit in the last place of 1: 1 + u is a tie, which rounds to 1, and 1 + 2 u is exact.
TEST_CASE("round_sum rounds once: two halves of a unit are a unit") {
  const test::Rank rank;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const double u = test::unit_roundoff(dtype);
    const Tensor half = test::tensor_of({u}, {1}, dtype), y = poisoned({1}, dtype);
    CAPTURE(name_of(dtype));
    round_sum(y, Tensor::full({1}, DType::f32, 1.0 + u), half, {});
    CHECK(to_doubles(y) == std::vector{1.0 + 2.0 * u});
    round_sum(y, Tensor::full({1}, DType::f32, 1.0 + u), {}, half);
    CHECK(to_doubles(y) == std::vector{1.0 + 2.0 * u});
    round_sum(y, Tensor::full({1}, DType::f32, 1.0), half, half);
    CHECK(to_doubles(y) == std::vector{1.0 + 2.0 * u});
  }
}

TEST_CASE("round_sum over its residual or its sums has the same bits") {
  const test::Rank rank;
  for_every_case([](const Case& c) {
    c.run();
    if (c.residual.defined()) {
      const Tensor in_place = c.residual.clone();
      round_sum(in_place, c.sums, c.bias, in_place);
      CHECK(same_bits(in_place, c.y));
    }
    if (c.sums.dtype() == c.y.dtype()) {
      const Tensor in_place = c.sums.clone();
      round_sum(in_place, in_place, c.bias, c.residual);
      CHECK(same_bits(in_place, c.y));
    }
  });
}

TEST_CASE("round_sum has the same bits under every schedule, and wherever the tensors lie") {
  const test::Rank owner;  // the tensors outlive the contexts of the schedules
  std::vector<Tensor> all;
  for (const bool moved : {false, true}) {
    const auto results = test::under_every_schedule([&] {
      Case c({317, 521}, DType::bf16, true, true);
      if (moved) {
        for (Tensor* tensor : {&c.y, &c.sums, &c.bias, &c.residual}) {
          *tensor = test::unaligned(*tensor);
        }
      }
      c.run();
      return c.y;
    });
    all.insert(all.end(), results.begin(), results.end());
  }
  for (const Tensor& y : all) CHECK(same_bits(y, all.front()));
}

TEST_CASE("round_sum refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor y = Tensor::zeros({2, 3}, DType::bf16), sums = Tensor::zeros({2, 3}, DType::f32);
  const Tensor bias = Tensor::zeros({3}, DType::bf16), ids = Tensor::zeros({2, 3}, DType::i32);
  const auto raises = [&](Out to, const Tensor& from, const Tensor& b, const Tensor& residual,
                          const std::string& message) {
    REQUIRE_THROWS_WITH(round_sum(to, from, b, residual), Contains("round_sum: " + message));
  };
  raises(y, {}, bias, y, "sums is an undefined tensor");
  raises(ids, sums, {}, {}, "y is i32 [2, 3]; its dtype must be f32, bf16, f16 or f64");
  raises(y, y.clone(), bias, y, "sums is bf16 [2, 3]; its dtype must be f32");
  raises(y, Tensor::zeros({3, 2}, DType::f32), bias, y,
         "sums is f32 [3, 2]; its shape must be [2, 3]");
  raises(y, sums, Tensor::zeros({2}, DType::bf16), y, "bias is bf16 [2]; its shape must be [3]");
  raises(y, sums, Tensor::zeros({3}, DType::f32), y,
         "y is bf16 [2, 3] and bias is f32 [3]; their dtypes must be equal");
  raises(y, sums, y.slice(0, 1).reshape({3}), {}, "bias overlaps y");
  raises(y, sums, bias, sums, "y is bf16 [2, 3] and residual is f32 [2, 3]; their dtypes");
  raises(y, sums, bias, bias, "residual is bf16 [3]; its shape must be [2, 3]");
  const Tensor memory = Tensor::zeros({3, 3}, DType::bf16);
  raises(memory.slice(0, 2), sums, bias, memory.slice(1, 3), "y overlaps residual in part");
  if (!test::kOnGpu) {
    raises(Tensor::zeros({2, 3}, DType::f64), sums, {}, {},
           "sums is f32 [2, 3]; its dtype must be f64");
  }
}

}  // namespace tessera
