// GELU and its gradient as epilogues of our product on Hopper.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/gelu/op.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/options.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

struct Sizes {
  std::int64_t rows, depth, columns;
};

/// Calls f(sizes, dtype, transpose) for tails of rows, columns and depths, for tiles with 0, 64 and 128 rows, and for
/// clusters of one and two blocks.
template <typename F>
void for_every_product(F f) {
  for (const Sizes& n : {Sizes{1, 8, 256}, {70, 72, 264}, {300, 136, 520}, {2050, 16, 256}}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
        CAPTURE(n.rows, n.depth, n.columns, name_of(dtype), transpose == Transpose::yes);
        test::for_every_schedule([&] {
          matmul_options().gelu = GeluChoice::own;
          f(n, dtype, transpose);
        });
      }
    }
  }
}

/// A layer's weight [in, out], stored as `transpose` tells.
Tensor weight_of(std::int64_t in, std::int64_t out, DType dtype, Transpose transpose) {
  return test::normal_tensor(transpose == Transpose::yes ? Shape{out, in} : Shape{in, out}, dtype,
                             "weight");
}

/// The greatest error of lines of sums of x's rows, relative to the sums of magnitudes.
double error_of_lines(const Tensor& lines, const Tensor& x) {
  constexpr std::int64_t kRows = 128;
  const std::int64_t rows = x.size(0), columns = x.size(1);
  REQUIRE(lines.shape() == Shape{(rows + kRows - 1) / kRows, columns});
  const auto sums = lines.to_vector<float>();
  const auto values = test::to_doubles(x);
  double error = 0.0;
  for (std::int64_t line = 0; line < lines.size(0); ++line) {
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = 0.0, magnitude = 1e-30;
      for (std::int64_t n = line * kRows; n < std::min(rows, (line + 1) * kRows); ++n) {
        const double value = values[static_cast<std::size_t>(n * columns + c)];
        sum += value;
        magnitude += std::abs(value);
      }
      const double found = sums[static_cast<std::size_t>(line * columns + c)];
      if (!std::isfinite(found)) return INFINITY;
      error = std::max(error, std::abs(found - sum) / magnitude);
    }
  }
  return error;
}

}  // namespace

TEST_CASE("GELU as an epilogue: pre is x W + b, and y has the bits of GELU's kernel") {
  for_every_product([](const Sizes& n, DType dtype, Transpose transpose) {
    const Tensor x = test::normal_tensor({n.rows, n.depth}, dtype, "x");
    const Tensor weight = weight_of(n.depth, n.columns, dtype, transpose);
    const Tensor bias = test::normal_tensor({n.columns}, dtype, "bias");
    const Tensor y = test::poisoned({n.rows, n.columns}, dtype), pre = y.clone(),
                 of_pre = y.clone();
    linear_gelu_forward(y, pre, x, weight, transpose, bias);
    auto expected = test::product_reference(x, weight, Transpose::no, transpose);
    const auto addends = test::to_doubles(bias);
    for (std::size_t i = 0; i < expected.value.size(); ++i) {
      const double addend = addends[i % addends.size()];
      expected.value[i] += addend;
      expected.magnitude[i] += std::abs(addend);
    }
    ++expected.terms;
    CHECK(test::excess(pre, expected) <= 1.0);
    gelu_forward(of_pre, pre);
    CHECK(test::same_bits(y, of_pre));
  });
}

TEST_CASE(
    "GELU's gradient as an epilogue has the bits of its kernel, and lines of its rows' sums") {
  for_every_product([](const Sizes& n, DType dtype, Transpose transpose) {
    const Tensor dy = test::normal_tensor({n.rows, n.depth}, dtype, "dy");
    const Tensor weight = weight_of(n.columns, n.depth, dtype, transpose);
    const Tensor pre = test::normal_tensor({n.rows, n.columns}, dtype, "pre");
    const Tensor dpre = test::poisoned({n.rows, n.columns}, dtype), expected = dpre.clone(),
                 without_sums = dpre.clone();
    Tensor sums, again;
    linear_backward_input(dpre, dy, weight, transpose, pre, GeluForm::tanh, &sums);
    linear_backward_input(without_sums, dy, weight, transpose, pre);
    // Our own product, then GELU's kernel.
    const Tensor offsets =
        Tensor::from(std::vector<std::int32_t>{0, static_cast<std::int32_t>(n.rows)}, {2});
    grouped_matmul(expected, dy, weight.reshape({1, weight.size(0), weight.size(1)}), offsets,
                   opposite(transpose));
    gelu_backward(expected, expected, pre);
    CHECK(test::same_bits(dpre, expected));
    CHECK(test::same_bits(without_sums, expected));
    REQUIRE(sums.defined());
    CHECK(error_of_lines(sums, dpre) <= 1e-6);
    linear_backward_input(dpre, dy, weight, transpose, pre, GeluForm::tanh, &again);
    CHECK(test::same_bits(again, sums));
  });
}

TEST_CASE("GELU is an epilogue of our product where the rank has chosen it and the layer suits") {
  struct Case {
    int capability;
    std::int64_t columns;
    DType dtype;
    GeluForm form;
    GeluChoice choice;
    bool own;
  };
  const auto tanh = GeluForm::tanh;
  for (const Case& c : {Case{90, 256, DType::bf16, tanh, GeluChoice::own, true},
                        {90, 256, DType::bf16, tanh, GeluChoice::library, false},
                        {90, 256, DType::bf16, GeluForm::exact, GeluChoice::own, false},
                        {90, 256, DType::f32, tanh, GeluChoice::own, false},
                        {90, 248, DType::bf16, tanh, GeluChoice::own, false},
                        {90, 260, DType::bf16, tanh, GeluChoice::own, false},
                        {80, 256, DType::bf16, tanh, GeluChoice::own, false}}) {
    CAPTURE(c.capability, c.columns, name_of(c.dtype));
    const test::Capability gpu(c.capability);
    const test::Rank rank;
    REQUIRE(matmul_options().gelu == GeluChoice::library);
    matmul_options().gelu = c.choice;
    const Tensor dy = test::normal_tensor({5, 16}, c.dtype, "dy"),
                 weight = test::normal_tensor({c.columns, 16}, c.dtype, "weight"),
                 pre = test::normal_tensor({5, c.columns}, c.dtype, "pre"),
                 dpre = test::poisoned({5, c.columns}, c.dtype);
    Tensor sums = dpre;
    linear_backward_input(dpre, dy, weight, Transpose::no, pre, c.form, &sums);
    CHECK(sums.defined() == c.own);
  }
}

}  // namespace tessera
