// layer_norm and rms_norm, with and without a residual.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/add/op.h"
#include "kernels/bias/op.h"
#include "tests/kernels/norm_case.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera::test {

using Catch::Contains;

TEST_CASE("norms: y and the saved statistics follow the definition") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kNormShapes) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const NormCase c(norm, shape, dtype, dtype);
      c.forward();
      const NormReference expected(c);
      REQUIRE(relative_error(to_doubles(c.y), expected.y) <= bound);
      // Statistics are never rounded to 16 bits.
      const double statistics_bound = dtype == DType::f64 ? 1e-13 : f32_sum_bound(c.C);
      REQUIRE(relative_error(to_doubles(c.rstd), expected.rstd) <= statistics_bound);
      if (norm == Norm::layer) {
        REQUIRE(relative_error(to_doubles(c.mean), expected.mean) <= statistics_bound);
      }
    }
  }
}

TEST_CASE("norms: gradients follow the formulas") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kNormShapes) {
      for (const DType gradient_dtype : {dtype, statistics_dtype(dtype)}) {
        INFO(name_of(dtype) << " " << to_string(shape) << " " << name_of(gradient_dtype));
        const NormCase c(norm, shape, dtype, gradient_dtype);
        c.poison_parameter_gradients();
        c.forward();
        c.backward(Accumulate::no);
        const NormReference expected(c);
        // With a mean, a row of two columns cancels: dx is a small difference of large numbers.
        const bool cancels = norm == Norm::layer && shape == Shape{1, 2} && dtype != DType::f64;
        REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound + (cancels ? 1e-3 : 0.0));
        expected.require_parameter_gradients(
            c, gradient_dtype == DType::f32 ? f32_sum_bound(c.C) : bound);
      }
    }
  }
}

TEST_CASE("norms: parameter gradients are overwritten or accumulated") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  const NormCase c(norm, {40, 33}, DType::bf16, DType::f32);
  c.forward();
  const NormReference expected(c);
  NormReference sums = expected;
  const auto gradients = c.parameter_gradients();
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    const auto before = to_doubles(gradients[g]);
    for (std::size_t i = 0; i < before.size(); ++i) sums.parameter_gradients[g][i] += before[i];
  }
  c.backward(Accumulate::yes);
  sums.require_parameter_gradients(c, 2e-6);

  c.poison_parameter_gradients();
  c.backward(Accumulate::no);
  expected.require_parameter_gradients(c, 2e-6);
}

TEST_CASE("norms: the same bits under every schedule") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank owner;  // the tensors outlive the contexts of the schedules
  for (const Shape& shape : {Shape{300, 70}, Shape{20, 1100}, Shape{9, 8200}}) {
    const auto results = under_every_schedule([&] {
      const NormCase c(norm, shape, DType::bf16, DType::f32);
      c.add_forward();
      c.add_backward(Accumulate::yes);
      return c;
    });
    for (const NormCase& c : results) require_same_results(c, results[0]);
  }
}

TEST_CASE("norms: the same bits wherever tensors lie") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{20, 40}, Shape{3, 320}, Shape{3, 768}, Shape{3, 1536},
                               Shape{2, 2560}, Shape{2, 8192}, Shape{2, 8320}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const NormCase aligned(norm, shape, dtype, dtype);
      NormCase moved(norm, shape, dtype, dtype), parameter_moved(norm, shape, dtype, dtype);
      moved.misalign();
      Tensor& parameter = norm == Norm::layer ? parameter_moved.bias : parameter_moved.weight;
      parameter = unaligned(parameter);
      for (const NormCase* c : {&aligned, &std::as_const(moved), &std::as_const(parameter_moved)}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, aligned);
      }
    }
  }
}

TEST_CASE("layer norm: the sum of dx's rows has the bits of a bias's gradient") {
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    // With 2,200 rows chunks have more than the fewest.
    for (const Shape& shape : {Shape{0, 7}, Shape{1, 2}, Shape{301, 70}, Shape{2200, 264},
                               Shape{90, 768}, Shape{40, 1537}, Shape{20, 8200}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const NormCase c(Norm::layer, shape, dtype, DType::f32);
      c.add_forward();
      const Tensor total = poisoned({c.C}, statistics_dtype(dtype));
      const Tensor expected = poisoned({c.C}, statistics_dtype(dtype));
      for (const Tensor& dsum : {c.dsum, Tensor()}) {
        add_layer_norm_backward(c.dx, total, {}, {}, c.dy, dsum, c.sum, c.weight, c.mean, c.rstd,
                                Accumulate::yes);
        bias_backward(expected, c.dx, Accumulate::no);
        REQUIRE(same_bits(total, expected));
      }
    }
  }
}

/// Many rows for the teams that are warps and for those that are blocks. The bound of a sum over
/// rows grows with the root of their number, as that of a sum over columns does.
TEST_CASE("norms: many rows") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  const auto check_shape = [&](const Shape& shape, DType dtype, double bound) {
    INFO(name_of(dtype) << " " << to_string(shape));
    const NormCase c(norm, shape, dtype, DType::f32);
    c.forward();
    c.backward(Accumulate::no);
    const NormReference expected(c);
    REQUIRE(relative_error(to_doubles(c.y), expected.y) <= bound);
    REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound);
    expected.require_parameter_gradients(c, f32_sum_bound(c.N));
  };
  check_shape({4301, 5}, DType::f32, 2e-6);
  check_shape({301, 1100}, DType::bf16, 0x1p-8);
}

TEST_CASE("norms with a residual: the bits of add, the norm and add") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{40, 33}, Shape{3, 768}, Shape{2, 2, 1600}, Shape{2, 8200}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const NormCase separate(norm, shape, dtype, dtype);
      add(separate.sum, separate.x, separate.residual);
      separate.forward_of(separate.sum);
      separate.backward_of(separate.sum, Accumulate::yes);
      const Tensor dx_of_norm = separate.dx.clone();
      add(separate.dx, separate.dx, separate.dsum);

      NormCase over_x(norm, shape, dtype, dtype), over_residual(norm, shape, dtype, dtype);
      NormCase fused(norm, shape, dtype, dtype);
      over_x.sum = over_x.x;
      over_residual.sum = over_residual.residual;
      over_residual.dx = over_residual.dsum;
      for (const NormCase* c : {&fused, &over_x, &over_residual}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, separate);
      }
      fused.dsum = fused.dweight = fused.dbias = {};
      fused.add_backward(Accumulate::no);
      REQUIRE(same_bits(fused.dx, dx_of_norm));
    }
  }
}

TEST_CASE("norms: no rows give zero parameter gradients") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  const NormCase c(norm, {0, 4}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  for (const Tensor& gradient : c.parameter_gradients()) {
    REQUIRE(to_doubles(gradient) == std::vector<double>(4, 0.0));
    gradient.copy_from(normal_tensor({4}, DType::f32, "before"));
  }
  c.add_forward();
  c.add_backward(Accumulate::yes);
  for (const Tensor& gradient : c.parameter_gradients()) {
    REQUIRE(same_bits(gradient, normal_tensor({4}, DType::f32, "before")));
  }
}

TEST_CASE("norms: undefined parameter gradients change no bit of the others") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const Rank rank;
  const NormCase all(norm, {40, 33}, DType::bf16, DType::f32);
  all.forward();
  all.backward(Accumulate::no);
  for (const bool with_weight : {false, true}) {
    for (const bool with_bias : {false, true}) {
      NormCase some(norm, {40, 33}, DType::bf16, DType::f32);
      some.forward();
      if (!with_weight) some.dweight = {};
      if (!with_bias) some.dbias = {};
      some.backward(Accumulate::no);
      CHECK(same_bits(some.dx, all.dx));
      if (some.dweight.defined()) CHECK(same_bits(some.dweight, all.dweight));
      if (some.dbias.defined()) CHECK(same_bits(some.dbias, all.dbias));
    }
  }
}

TEST_CASE("layer_norm: the variance is exact where the mean is much larger than the spread") {
  const Rank rank;
  for (const Shape& shape : {Shape{4, 250}, Shape{2, 8200}}) {
    NormCase c(Norm::layer, shape, DType::f32, DType::f32);
    std::vector<double> far = to_doubles(c.x);
    for (double& value : far) value += 3000.0;
    c.x = tensor_of(far, shape, DType::f32);
    c.forward();
    // E[x^2] - mean^2 in f32 would be off by some 9e6 * 2^-24 = 0.5 of a variance of 4.
    REQUIRE(relative_error(to_doubles(c.rstd), NormReference(c).rstd) <= 1e-5);
  }
}

TEST_CASE("layer_norm: one column gives the bias and no gradient to x") {
  const Rank rank;
  const NormCase c(Norm::layer, {3, 1}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  const double bias = to_doubles(c.bias)[0];
  REQUIRE(to_doubles(c.y) == std::vector<double>(3, bias));
  // Zero to the rounding of g, which rstd = 1 / sqrt(epsilon) enlarges.
  for (const double dx : to_doubles(c.dx)) REQUIRE(std::fabs(dx) <= 316.3 * 4.0 * 0x1p-24);
}

TEST_CASE("rms_norm adds its offset to the weight") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    CAPTURE(name_of(dtype));
    NormCase with(Norm::rms, {5, 24}, dtype, dtype), without(Norm::rms, {5, 24}, dtype, dtype);
    // 1 + weight is exact in 16 bits, too.
    std::vector<double> weight, sum;
    for (int i = 0; i < 24; ++i) {
      weight.push_back((i - 11) / 64.0);
      sum.push_back(1.0 + weight.back());
    }
    with.weight = test::tensor_of(weight, {24}, dtype);
    without.weight = test::tensor_of(sum, {24}, dtype);
    with.offset = 1.0f;
    for (const NormCase* c : {&with, &without}) {
      c->forward();
      c->backward(Accumulate::no);
    }
    require_same_results(with, without);
    for (const NormCase* c : {&with, &without}) {
      c->add_forward();
      c->add_backward(Accumulate::yes);
    }
    require_same_results(with, without);
  }
}

TEST_CASE("rms_norm: one column gives the weight with x's sign, and nearly no gradient to x") {
  const Rank rank;
  const NormCase c(Norm::rms, {3, 1}, DType::f32, DType::f32);
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

TEST_CASE("norms: wrong arguments are named") {
  const Norm norm = GENERATE(Norm::layer, Norm::rms);
  const bool layer = norm == Norm::layer;
  const std::string name = layer ? "layer_norm" : "rms_norm";
  const std::string statistic = layer ? "mean" : "rstd", gradient = layer ? "dbias" : "dweight";
  const Rank rank;
  const auto refused = [&](const std::string& message, auto run, auto spoil) {
    NormCase c(norm, {2, 4}, DType::bf16, DType::f32);
    spoil(c);
    REQUIRE_THROWS_WITH(run(c), Contains(message));
  };
  const auto forward = [](const NormCase& c) { c.forward(); };
  const auto backward = [](const NormCase& c) { c.backward(Accumulate::no); };
  const auto add_forward = [](const NormCase& c) { c.add_forward(); };
  const auto add_backward = [](const NormCase& c) { c.add_backward(Accumulate::no); };
  const Tensor f32 = Tensor::zeros({2, 4}, DType::f32), five = Tensor::zeros({5}, DType::bf16);
  const Tensor none = Tensor::zeros({2, 0}, DType::bf16);
  refused(name + "_forward: x is bf16 [2, 4] and y is f32 [2, 4]", forward,
          [&](NormCase& c) { c.y = f32; });
  refused("weight is bf16 [5]; its shape must be [4]", forward,
          [&](NormCase& c) { c.weight = five; });
  refused("last dimension must not be empty", forward, [&](NormCase& c) { c.x = c.y = none; });
  refused("y overlaps x", forward, [](NormCase& c) { c.y = c.x; });
  refused(statistic + " is f32 [4]; its shape must be [2]", forward,
          [&](NormCase& c) { (layer ? c.mean : c.rstd) = c.dweight; });
  refused(gradient + " is bf16 [5]; its shape must be [4]", backward,
          [&](NormCase& c) { (layer ? c.dbias : c.dweight) = five; });
  refused("dx overlaps dy", backward, [](NormCase& c) { c.dx = c.dy; });

  const Tensor memory = Tensor::zeros({3, 4}, DType::bf16);
  const Tensor first = memory.slice(0, 2), last = memory.slice(1, 3);
  refused("add_" + name + "_forward: residual is bf16 [3, 4] and x is", add_forward,
          [&](NormCase& c) { c.residual = memory; });
  refused("sum is an undefined tensor", add_forward, [](NormCase& c) { c.sum = {}; });
  refused("y overlaps sum", add_forward, [](NormCase& c) { c.y = c.sum; });
  refused("y overlaps residual", add_forward, [](NormCase& c) { c.y = c.residual; });
  refused("sum overlaps x in part", add_forward, [&](NormCase& c) { c.sum = first, c.x = last; });
  refused("add_" + name + "_backward: dsum is bf16 [3, 4] and sum is", add_backward,
          [&](NormCase& c) { c.dsum = memory; });
  refused("dtypes must be equal", add_backward, [&](NormCase& c) { c.dsum = f32; });
  refused("dx overlaps dsum in part", add_backward,
          [&](NormCase& c) { c.dx = first, c.dsum = last; });
  refused("dx overlaps sum", add_backward, [](NormCase& c) { c.dx = c.sum; });
}

}  // namespace tessera::test
