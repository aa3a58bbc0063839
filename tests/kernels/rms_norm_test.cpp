#include "kernels/rms_norm/op.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/kernels/norm_case.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kNormEpsilon;
using test::NormCase;
using test::NormReference;
using test::relative_error;
using test::to_doubles;

constexpr test::Norm kNorm = test::Norm::rms;

}  // namespace

TEST_CASE("rms_norm: y and the saved rstd follow the definition") {
  test::check_forward(kNorm);
}

TEST_CASE("rms_norm: gradients follow the formulas") {
  test::check_gradients(kNorm);
}

TEST_CASE("rms_norm: parameter gradients are overwritten or accumulated") {
  test::check_accumulation(kNorm);
}

TEST_CASE("rms_norm: the same bits under every schedule") {
  test::check_schedules(kNorm);
}

TEST_CASE("rms_norm: the same bits wherever tensors lie") {
  test::check_alignment(kNorm);
}

TEST_CASE("rms_norm: many rows") {
  test::check_many_rows(kNorm);
}

TEST_CASE("add_rms_norm: the bits of add, rms_norm and add") {
  test::check_residual(kNorm);
}

TEST_CASE("rms_norm: no rows give zero parameter gradients") {
  test::check_no_rows(kNorm);
}

TEST_CASE("rms_norm: undefined parameter gradients change no bit of the others") {
  test::check_undefined_gradients(kNorm);
}

TEST_CASE("rms_norm: one column gives the weight with x's sign, and nearly no gradient to x") {
  const test::Rank rank;
  const NormCase c(kNorm, {3, 1}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  const NormReference expected(c);
  REQUIRE(relative_error(to_doubles(c.y), expected.y) <= 2e-6);
  // g (1 - xhat^2) rstd, a difference of nearly equal numbers: exact to the rounding of g.
  const auto dx = to_doubles(c.dx), dy = to_doubles(c.dy), weight = to_doubles(c.weight);
  for (std::size_t n = 0; n < dx.size(); ++n) {
    const double g = std::fabs(dy[n] * weight[0]);
    REQUIRE(std::fabs(dx[n] - expected.dx[n]) <= 4.0 * 0x1p-24 * g * expected.rstd[n]);
  }
}

TEST_CASE("rms_norm: wrong arguments are named") {
  const test::Rank rank;
  const NormCase c(kNorm, {2, 4}, DType::bf16, DType::f32);
  const Tensor f32 = Tensor::zeros({2, 4}, DType::f32);
  const Tensor five = Tensor::zeros({5}, DType::bf16);
  const Tensor none = Tensor::zeros({2, 0}, DType::bf16);
  REQUIRE_THROWS_WITH(rms_norm_forward(f32, c.rstd, c.x, c.weight, kNormEpsilon),
                      Contains("rms_norm_forward: x is bf16 [2, 4] and y is f32 [2, 4]"));
  REQUIRE_THROWS_WITH(rms_norm_forward(c.y, c.rstd, c.x, five, kNormEpsilon),
                      Contains("weight is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(rms_norm_forward(none, c.rstd, none, c.weight, kNormEpsilon),
                      Contains("last dimension must not be empty"));
  REQUIRE_THROWS_WITH(rms_norm_forward(c.x, c.rstd, c.x, c.weight, kNormEpsilon),
                      Contains("y overlaps x"));
  REQUIRE_THROWS_WITH(rms_norm_forward(c.y, c.dweight, c.x, c.weight, kNormEpsilon),
                      Contains("rstd is f32 [4]; its shape must be [2]"));
  REQUIRE_THROWS_WITH(rms_norm_backward(c.dx, five, c.dy, c.x, c.weight, c.rstd, Accumulate::no),
                      Contains("dweight is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(
      rms_norm_backward(c.dy, c.dweight, c.dy, c.x, c.weight, c.rstd, Accumulate::no),
      Contains("dx overlaps dy"));
}

TEST_CASE("add_rms_norm: wrong arguments are named") {
  const test::Rank rank;
  const NormCase c(kNorm, {2, 4}, DType::bf16, DType::f32);
  const Tensor memory = Tensor::zeros({3, 4}, DType::bf16);
  const auto forward = [&](Out y, Out sum, const Tensor& x, const Tensor& residual) {
    add_rms_norm_forward(y, sum, c.rstd, x, residual, c.weight, kNormEpsilon);
  };
  const auto backward = [&](Out dx, const Tensor& dsum) {
    add_rms_norm_backward(dx, c.dweight, c.dy, dsum, c.sum, c.weight, c.rstd, Accumulate::no);
  };
  REQUIRE_THROWS_WITH(forward(c.y, c.sum, c.x, memory),
                      Contains("add_rms_norm_forward: residual is bf16 [3, 4] and x is"));
  REQUIRE_THROWS_WITH(forward(c.y, {}, c.x, c.residual), Contains("sum is an undefined tensor"));
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
