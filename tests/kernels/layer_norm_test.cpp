#include "kernels/layer_norm/op.h"

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

constexpr test::Norm kNorm = test::Norm::layer;

}  // namespace

TEST_CASE("layer_norm: y and the saved statistics follow the definition") {
  test::check_forward(kNorm);
}

TEST_CASE("layer_norm: gradients follow the formulas") {
  test::check_gradients(kNorm);
}

TEST_CASE("layer_norm: parameter gradients are overwritten or accumulated") {
  test::check_accumulation(kNorm);
}

TEST_CASE("layer_norm: the same bits under every schedule") {
  test::check_schedules(kNorm);
}

TEST_CASE("layer_norm: the same bits wherever tensors lie") {
  test::check_alignment(kNorm);
}

TEST_CASE("layer_norm: many rows") {
  test::check_many_rows(kNorm);
}

TEST_CASE("add_layer_norm: the bits of add, layer_norm and add") {
  test::check_residual(kNorm);
}

TEST_CASE("layer_norm: no rows give zero parameter gradients") {
  test::check_no_rows(kNorm);
}

TEST_CASE("layer_norm: undefined parameter gradients change no bit of the others") {
  test::check_undefined_gradients(kNorm);
}

TEST_CASE("layer_norm: the variance is exact where the mean is much larger than the spread") {
  const test::Rank rank;
  for (const Shape& shape : {Shape{4, 250}, Shape{2, 8200}}) {
    NormCase c(kNorm, shape, DType::f32, DType::f32);
    std::vector<double> far = to_doubles(c.x);
    for (double& value : far) value += 3000.0;
    c.x = test::tensor_of(far, shape, DType::f32);
    c.forward();
    // E[x^2] - mean^2 in f32 would be off by some 9e6 * 2^-24 = 0.5 of a variance of 4.
    REQUIRE(relative_error(to_doubles(c.rstd), NormReference(c).rstd) <= 1e-5);
  }
}

TEST_CASE("layer_norm: one column gives the bias and no gradient to x") {
  const test::Rank rank;
  const NormCase c(kNorm, {3, 1}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  const double bias = to_doubles(c.bias)[0];
  REQUIRE(to_doubles(c.y) == std::vector<double>(3, bias));
  // Zero to the rounding of g, which rstd = 1 / sqrt(epsilon) enlarges.
  for (const double dx : to_doubles(c.dx)) REQUIRE(std::fabs(dx) <= 316.3 * 4.0 * 0x1p-24);
}

TEST_CASE("layer_norm: wrong arguments are named") {
  const test::Rank rank;
  const NormCase c(kNorm, {2, 4}, DType::bf16, DType::f32);
  const Tensor f32 = Tensor::zeros({2, 4}, DType::f32);
  const Tensor five = Tensor::zeros({5}, DType::bf16);
  const Tensor none = Tensor::zeros({2, 0}, DType::bf16);
  REQUIRE_THROWS_WITH(layer_norm_forward(f32, c.mean, c.rstd, c.x, c.weight, c.bias, kNormEpsilon),
                      Contains("layer_norm_forward: x is bf16 [2, 4] and y is f32 [2, 4]"));
  REQUIRE_THROWS_WITH(layer_norm_forward(c.y, c.mean, c.rstd, c.x, five, c.bias, kNormEpsilon),
                      Contains("weight is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(
      layer_norm_forward(none, c.mean, c.rstd, none, c.weight, c.bias, kNormEpsilon),
      Contains("last dimension must not be empty"));
  REQUIRE_THROWS_WITH(layer_norm_forward(c.x, c.mean, c.rstd, c.x, c.weight, c.bias, kNormEpsilon),
                      Contains("y overlaps x"));
  REQUIRE_THROWS_WITH(
      layer_norm_forward(c.y, c.dweight, c.rstd, c.x, c.weight, c.bias, kNormEpsilon),
      Contains("mean is f32 [4]; its shape must be [2]"));
  REQUIRE_THROWS_WITH(layer_norm_backward(c.dx, c.dweight, five, c.dy, c.x, c.weight, c.mean,
                                          c.rstd, Accumulate::no),
                      Contains("dbias is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(layer_norm_backward(c.dy, c.dweight, c.dbias, c.dy, c.x, c.weight, c.mean,
                                          c.rstd, Accumulate::no),
                      Contains("dx overlaps dy"));
}

TEST_CASE("add_layer_norm: wrong arguments are named") {
  const test::Rank rank;
  const NormCase c(kNorm, {2, 4}, DType::bf16, DType::f32);
  const Tensor memory = Tensor::zeros({3, 4}, DType::bf16);
  const auto forward = [&](Out y, Out sum, const Tensor& x, const Tensor& residual) {
    add_layer_norm_forward(y, sum, c.mean, c.rstd, x, residual, c.weight, c.bias, kNormEpsilon);
  };
  const auto backward = [&](Out dx, const Tensor& dsum) {
    add_layer_norm_backward(dx, c.dweight, c.dbias, c.dy, dsum, c.sum, c.weight, c.mean, c.rstd,
                            Accumulate::no);
  };
  REQUIRE_THROWS_WITH(forward(c.y, c.sum, c.x, memory),
                      Contains("add_layer_norm_forward: residual is bf16 [3, 4] and x is"));
  REQUIRE_THROWS_WITH(forward(c.y, {}, c.x, c.residual), Contains("sum is an undefined tensor"));
  REQUIRE_THROWS_WITH(forward(c.y, c.y, c.x, c.residual), Contains("y overlaps sum"));
  REQUIRE_THROWS_WITH(forward(c.residual, c.sum, c.x, c.residual), Contains("y overlaps residual"));
  REQUIRE_THROWS_WITH(forward(c.y, memory.slice(0, 2), memory.slice(1, 3), c.residual),
                      Contains("sum overlaps x in part"));
  REQUIRE_THROWS_WITH(backward(c.dx, memory),
                      Contains("add_layer_norm_backward: dsum is bf16 [3, 4] and sum is"));
  REQUIRE_THROWS_WITH(backward(c.dx, Tensor::zeros({2, 4}, DType::f32)),
                      Contains("dtypes must be equal"));
  REQUIRE_THROWS_WITH(backward(memory.slice(0, 2), memory.slice(1, 3)),
                      Contains("dx overlaps dsum in part"));
  REQUIRE_THROWS_WITH(backward(c.sum, c.dsum), Contains("dx overlaps sum"));
}

}  // namespace tessera
