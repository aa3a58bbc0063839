#include "kernels/rms_norm/op.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/add/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kPrecisions;
using test::normal_tensor;
using test::poisoned;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

constexpr float kEpsilon = 1e-5f;

// A rms_norm of random inputs, its results, and the same by the formulas in double.
struct Case {
  std::int64_t N, C;
  Tensor x, residual, weight, dy, dsum;
  Tensor y, sum, rstd, dx, dweight;

  Case(const Shape& shape, DType dtype, DType gradient_dtype)
      : N(shape.numel() / shape[-1]),
        C(shape[-1]),
        x(normal_tensor(shape, dtype, "x", 2.0)),
        residual(normal_tensor(shape, dtype, "residual")),
        weight(normal_tensor({C}, dtype, "weight")),
        dy(normal_tensor(shape, dtype, "dy")),
        dsum(normal_tensor(shape, dtype, "dsum")),
        y(poisoned(shape, dtype)),
        sum(poisoned(shape, dtype)),
        rstd(poisoned({N}, statistics_dtype(dtype))),
        dx(poisoned(shape, dtype)),
        dweight(normal_tensor({C}, gradient_dtype, "dweight")) {}

  void forward() const { rms_norm_forward(y, rstd, x, weight, kEpsilon); }
  void backward(Accumulate accumulate) const {
    rms_norm_backward(dx, dweight, dy, x, weight, rstd, accumulate);
  }
  void add_forward() const { add_rms_norm_forward(y, sum, rstd, x, residual, weight, kEpsilon); }
  void add_backward(Accumulate accumulate) const {
    add_rms_norm_backward(dx, dweight, dy, dsum, sum, weight, rstd, accumulate);
  }
  /// Moves every tensor of activations and parameters to where vectors of 16 bytes do not fit.
  void misalign() {
    for (Tensor* tensor : {&x, &residual, &weight, &dy, &dsum, &y, &sum, &dx, &dweight}) {
      *tensor = test::unaligned(*tensor);
    }
  }
};

void require_same_results(const Case& a, const Case& b) {
  REQUIRE(same_bits(a.y, b.y));
  REQUIRE(same_bits(a.sum, b.sum));
  REQUIRE(same_bits(a.rstd, b.rstd));
  REQUIRE(same_bits(a.dx, b.dx));
  REQUIRE(same_bits(a.dweight, b.dweight));
}

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

// Widths on both sides of what a warp, a block and a block in one go take in.
const std::vector<Shape> kShapes = {
    {2, 3, 37}, {1, 2},    {65, 16},  {5, 768},  {7},       {9, 256},  {2, 257},  {3, 513},
    {2, 1024},  {9, 1025}, {9, 1536}, {2, 2056}, {2, 4100}, {1, 8192}, {3, 8200}, {2, 16391}};

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
      const double statistics_bound = dtype == DType::f64 ? 1e-13 : test::f32_sum_bound(c.C);
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
        Case c(shape, dtype, gradient_dtype);
        c.dweight = poisoned({c.C}, gradient_dtype);
        c.forward();
        c.backward(Accumulate::no);
        const Reference expected(c);
        REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound);
        const double parameter_bound =
            gradient_dtype == DType::f32 ? test::f32_sum_bound(c.C) : bound;
        REQUIRE(relative_error(to_doubles(c.dweight), expected.dweight) <= parameter_bound);
      }
    }
  }
}

TEST_CASE("rms_norm: one column gives the weight with x's sign, and nearly no gradient to x") {
  const test::Rank rank;
  const Case c({3, 1}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  const Reference expected(c);
  REQUIRE(relative_error(to_doubles(c.y), expected.y) <= 2e-6);
  // g (1 - xhat^2) rstd, a difference of nearly equal numbers: exact to the rounding of g.
  const Values dx = to_doubles(c.dx), dy = to_doubles(c.dy), weight = to_doubles(c.weight);
  for (std::size_t n = 0; n < dx.size(); ++n) {
    const double g = std::fabs(dy[n] * weight[0]);
    REQUIRE(std::fabs(dx[n] - expected.dx[n]) <= 4.0 * 0x1p-24 * g * expected.rstd[n]);
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

TEST_CASE("rms_norm: the same bits whoever works when") {
  const test::Rank owner;  // the tensors outlive the contexts of the schedules
  for (const Shape& shape : {Shape{300, 70}, Shape{20, 1100}, Shape{9, 8200}}) {
    const auto results = test::under_every_schedule([&] {
      Case c(shape, DType::bf16, DType::f32);
      c.add_forward();
      c.add_backward(Accumulate::yes);
      return c;
    });
    for (const Case& c : results) require_same_results(c, results[0]);
  }
}

TEST_CASE("rms_norm: the same bits wherever tensors lie") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{20, 40}, Shape{3, 320}, Shape{3, 768}, Shape{3, 1536},
                               Shape{2, 2560}, Shape{2, 8192}, Shape{2, 8320}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const Case aligned(shape, dtype, dtype);
      Case moved(shape, dtype, dtype), weight_moved(shape, dtype, dtype);
      moved.misalign();
      weight_moved.weight = test::unaligned(weight_moved.weight);
      for (const Case* c : {&aligned, &std::as_const(moved), &std::as_const(weight_moved)}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, aligned);
      }
    }
  }
}

TEST_CASE("rms_norm: many rows") {
  const test::Rank rank;
  const Case c({4301, 3}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  const Reference expected(c);
  REQUIRE(relative_error(to_doubles(c.y), expected.y) <= 2e-6);
  REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= 2e-6);
  REQUIRE(relative_error(to_doubles(c.dweight), expected.dweight) <= 2e-6);
}

TEST_CASE("add_rms_norm: the bits of add, rms_norm and add") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{40, 33}, Shape{3, 768}, Shape{2, 2, 1600}, Shape{2, 8200}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      Case apart(shape, dtype, dtype);
      add(apart.sum, apart.x, apart.residual);
      rms_norm_forward(apart.y, apart.rstd, apart.sum, apart.weight, kEpsilon);
      rms_norm_backward(apart.dx, apart.dweight, apart.dy, apart.sum, apart.weight, apart.rstd,
                        Accumulate::yes);
      const Tensor dx_of_norm = apart.dx.clone();
      add(apart.dx, apart.dx, apart.dsum);

      Case over_x(shape, dtype, dtype), over_residual(shape, dtype, dtype);
      const Case fused(shape, dtype, dtype);
      over_x.sum = over_x.x;
      over_residual.sum = over_residual.residual;
      over_residual.dx = over_residual.dsum;
      for (const Case* c : {&fused, &std::as_const(over_x), &std::as_const(over_residual)}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, apart);
      }
      add_rms_norm_backward(fused.dx, {}, fused.dy, {}, fused.sum, fused.weight, fused.rstd,
                            Accumulate::no);
      REQUIRE(same_bits(fused.dx, dx_of_norm));
    }
  }
}

TEST_CASE("rms_norm: no rows give a zero weight gradient") {
  const test::Rank rank;
  const Case c({0, 4}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  REQUIRE(to_doubles(c.dweight) == Values(4, 0.0));
  c.dweight.copy_from(normal_tensor({4}, DType::f32, "dweight"));
  c.add_forward();
  c.add_backward(Accumulate::yes);
  REQUIRE(same_bits(c.dweight, normal_tensor({4}, DType::f32, "dweight")));
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

TEST_CASE("add_rms_norm: wrong arguments are named") {
  const test::Rank rank;
  const Case c({2, 4}, DType::bf16, DType::f32);
  const Tensor memory = Tensor::zeros({3, 4}, DType::bf16);
  const auto forward = [&](Out y, Out sum, const Tensor& x, const Tensor& residual) {
    add_rms_norm_forward(y, sum, c.rstd, x, residual, c.weight, kEpsilon);
  };
  const auto backward = [&](Out dx, const Tensor& dsum) {
    add_rms_norm_backward(dx, c.dweight, c.dy, dsum, c.sum, c.weight, c.rstd, Accumulate::no);
  };
  REQUIRE_THROWS_WITH(forward(c.y, c.sum, c.x, memory),
                      Contains("add_rms_norm_forward: residual is bf16 [3, 4] and x is"));
  REQUIRE_THROWS_WITH(forward(c.y, {}, c.x, c.residual), Contains("sum is no tensor"));
  REQUIRE_THROWS_WITH(forward(c.y, c.y, c.x, c.residual), Contains("y overlaps sum"));
  REQUIRE_THROWS_WITH(forward(c.residual, c.sum, c.x, c.residual), Contains("y overlaps residual"));
  REQUIRE_THROWS_WITH(forward(c.y, memory.slice(0, 2), memory.slice(1, 3), c.residual),
                      Contains("sum overlaps x in part"));
  REQUIRE_THROWS_WITH(backward(c.dx, memory),
                      Contains("add_rms_norm_backward: dsum is bf16 [3, 4] and sum is"));
  REQUIRE_THROWS_WITH(backward(c.dx, Tensor::zeros({2, 4}, DType::f32)),
                      Contains("dtypes must be equal"));
  REQUIRE_THROWS_WITH(backward(memory.slice(0, 2), memory.slice(1, 3)),
                      Contains("dx overlaps dsum in part"));
  REQUIRE_THROWS_WITH(backward(c.sum, c.dsum), Contains("dx overlaps sum"));
}

}  // namespace tessera
