#include "kernels/rms_norm/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kPrecisions;
using test::normal_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

constexpr float kEpsilon = 1e-5f;

// A rms_norm of random inputs, its results, and the same by the formulas in double.
struct Case {
  std::int64_t N, C;
  Tensor x, weight, dy;
  Tensor y, rstd, dx, dweight;

  Case(const Shape& shape, DType dtype, DType gradient_dtype)
      : N(shape.numel() / shape[-1]),
        C(shape[-1]),
        x(normal_tensor(shape, dtype, "x", 2.0)),
        weight(normal_tensor({C}, dtype, "weight")),
        dy(normal_tensor(shape, dtype, "dy")),
        y(Tensor::empty(shape, dtype)),
        rstd(Tensor::empty({N}, statistics_dtype(dtype))),
        dx(Tensor::empty(shape, dtype)),
        dweight(normal_tensor({C}, gradient_dtype, "dweight")) {}

  void forward() const { rms_norm_forward(y, rstd, x, weight, kEpsilon); }
  void backward(Accumulate accumulate) const {
    rms_norm_backward(dx, dweight, dy, x, weight, rstd, accumulate);
  }
};

struct Reference {
  Values y, rstd, dx, dweight;

  explicit Reference(const Case& c) : y(c.N * c.C), rstd(c.N), dx(c.N * c.C), dweight(c.C) {
    const Values x = to_doubles(c.x), weight = to_doubles(c.weight), dy = to_doubles(c.dy);
    const double C = static_cast<double>(c.C);
    for (std::int64_t n = 0; n < c.N; ++n) {
      double mean_square = 0.0;
      for (std::int64_t j = 0; j < c.C; ++j) mean_square += std::pow(x[n * c.C + j], 2) / C;
      rstd[n] = 1.0 / std::sqrt(mean_square + static_cast<double>(kEpsilon));
      double sum_g_xhat = 0.0;
      for (std::int64_t j = 0; j < c.C; ++j) {
        const std::int64_t i = n * c.C + j;
        const double xhat = x[i] * rstd[n];
        y[i] = xhat * weight[j];
        dweight[j] += dy[i] * xhat;
        sum_g_xhat += dy[i] * weight[j] * xhat;
      }
      for (std::int64_t j = 0; j < c.C; ++j) {
        const std::int64_t i = n * c.C + j;
        dx[i] = rstd[n] * (dy[i] * weight[j] - x[i] * rstd[n] * sum_g_xhat / C);
      }
    }
  }
};

const std::vector<Shape> kShapes = {{2, 3, 37}, {1, 2}, {65, 16}, {5, 768}, {7}};

}  // namespace

TEST_CASE("rms_norm: y and the saved rstd follow the definition") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kShapes) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const Case c(shape, dtype, dtype);
      c.forward();
      const Reference expected(c);
      REQUIRE(relative_error(to_doubles(c.y), expected.y) <= bound);
      // rstd is never rounded to 16 bits.
      const double statistics_bound = dtype == DType::f64 ? 1e-13 : 2e-6;
      REQUIRE(relative_error(to_doubles(c.rstd), expected.rstd) <= statistics_bound);
    }
  }
}

TEST_CASE("rms_norm: gradients follow the formulas") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kShapes) {
      for (const DType gradient_dtype : {dtype, statistics_dtype(dtype)}) {
        INFO(name_of(dtype) << " " << to_string(shape) << " " << name_of(gradient_dtype));
        const Case c(shape, dtype, gradient_dtype);
        c.forward();
        c.backward(Accumulate::no);
        const Reference expected(c);
        REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound);
        const double parameter_bound = gradient_dtype == DType::f32 ? 2e-6 : bound;
        REQUIRE(relative_error(to_doubles(c.dweight), expected.dweight) <= parameter_bound);
      }
    }
  }
}

TEST_CASE("rms_norm: the weight gradient is overwritten or added to") {
  const test::Rank rank;
  const Case c({40, 33}, DType::bf16, DType::f32);
  c.forward();
  const Reference expected(c);
  const Values before = to_doubles(c.dweight);
  c.backward(Accumulate::yes);
  Values sum = expected.dweight;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
  REQUIRE(relative_error(to_doubles(c.dweight), sum) <= 2e-6);

  c.dweight.copy_from(test::poisoned({c.C}, DType::f32));
  c.backward(Accumulate::no);
  REQUIRE(relative_error(to_doubles(c.dweight), expected.dweight) <= 2e-6);
}

TEST_CASE("rms_norm: the same bits for any number of threads") {
  std::vector<Tensor> first;
  const test::Rank owner;  // the tensors outlive the contexts of the loop
  for (const int threads : {1, 2, 3}) {
    const test::Rank rank(threads);
    const Case c({1200, 300}, DType::f32, DType::f32);
    c.forward();
    c.backward(Accumulate::yes);
    const std::vector<Tensor> results = {c.y, c.rstd, c.dx, c.dweight};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) REQUIRE(same_bits(results[i], first[i]));
  }
}

TEST_CASE("rms_norm: no rows give a zero weight gradient") {
  const test::Rank rank;
  const Case c({0, 4}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  REQUIRE(to_doubles(c.dweight) == Values(4, 0.0));
}

TEST_CASE("rms_norm: without the weight's gradient dx has the same bits") {
  const test::Rank rank;
  const Case all({40, 33}, DType::bf16, DType::f32);
  Case some({40, 33}, DType::bf16, DType::f32);
  some.dweight = {};
  for (const Case* c : std::initializer_list<const Case*>{&all, &some}) {
    c->forward();
    c->backward(Accumulate::no);
  }
  REQUIRE(same_bits(some.dx, all.dx));
}

TEST_CASE("rms_norm: wrong arguments are named") {
  const test::Rank rank;
  const Case c({2, 4}, DType::bf16, DType::f32);
  const Tensor f32 = Tensor::zeros({2, 4}, DType::f32);
  const Tensor five = Tensor::zeros({5}, DType::bf16);
  const Tensor none = Tensor::zeros({2, 0}, DType::bf16);
  REQUIRE_THROWS_WITH(rms_norm_forward(f32, c.rstd, c.x, c.weight, kEpsilon),
                      Contains("rms_norm_forward: x is bf16 [2, 4] and y is f32 [2, 4]"));
  REQUIRE_THROWS_WITH(rms_norm_forward(c.y, c.rstd, c.x, five, kEpsilon),
                      Contains("weight is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(rms_norm_forward(none, c.rstd, none, c.weight, kEpsilon),
                      Contains("last dimension must not be empty"));
  REQUIRE_THROWS_WITH(rms_norm_forward(c.x, c.rstd, c.x, c.weight, kEpsilon),
                      Contains("y overlaps x"));
  REQUIRE_THROWS_WITH(rms_norm_forward(c.y, c.dweight, c.x, c.weight, kEpsilon),
                      Contains("rstd is f32 [4]; its shape must be [2]"));
  REQUIRE_THROWS_WITH(rms_norm_backward(c.dx, five, c.dy, c.x, c.weight, c.rstd, Accumulate::no),
                      Contains("dweight is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(
      rms_norm_backward(c.dy, c.dweight, c.dy, c.x, c.weight, c.rstd, Accumulate::no),
      Contains("dx overlaps dy"));
}

}  // namespace tessera
