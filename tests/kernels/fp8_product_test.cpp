// Products of 8-bit factors, against float64 products of the numbers that they hold.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/linear/factor.h"
#include "tests/kernels/fp8_factor.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/device.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::fp8_factor;
using test::relative_error;
using test::to_doubles;
using Values = std::vector<double>;

struct Size {
  std::int64_t N, I, O;
};
// 8-bit tensor cores take the first ones, for all products or without the gradient of the weight.
constexpr Size kSizes[] = {{32, 48, 16}, {5, 16, 80}, {9, 24, 16}, {3, 16, 10}, {1, 1, 1}};

bool is_multiple(std::int64_t extent) {
  return extent % 16 == 0;
}

struct Layer {
  Size s;
  Transpose transpose;
  Factor x, weight, dy;
  Tensor bias, residual;

  Layer(const Size& size, Transpose t, DType gradients)
      : s(size),
        transpose(t),
        x(fp8_factor({s.N, s.I}, DType::e4m3, "x", 64.0)),
        weight(fp8_factor(t == Transpose::yes ? Shape{s.O, s.I} : Shape{s.I, s.O}, DType::e4m3,
                          "weight", 128.0)),
        dy(fp8_factor({s.N, s.O}, gradients, "dy", 0.5)),
        bias(test::normal_tensor({s.O}, DType::bf16, "bias")),
        residual(test::normal_tensor({s.N, s.O}, DType::bf16, "residual")) {}
};

template <typename Check>
void for_every_layer(const Check& check) {
  for (const Size& size : kSizes) {
    for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
      for (const DType gradients : {DType::e5m2, DType::e4m3}) {
        CAPTURE(size.N, size.I, size.O, transpose == Transpose::yes, name_of(gradients));
        const test::Rank rank;
        check(Layer(size, transpose, gradients));
      }
    }
  }
}

Values product(const Factor& a, const Factor& b, Transpose ta, Transpose tb) {
  return test::product_reference(expanded(a), expanded(b), ta, tb).value;
}

/// c = op(a) op(b), if a GPU's tensor cores take the factors as they are stored.
bool as_stored(Out c, const Factor& a, Transpose ta, const Factor& b, Transpose tb) {
  if constexpr (kHasCuda) return test::kOnGpu && cuda::fp8_product(c, a, ta, b, tb, {}, {});
  return false;
}

}  // namespace

TEST_CASE("8-bit products: a layer's result, with bias and residual") {
  for_every_layer([](const Layer& layer) {
    Values expected = product(layer.x, layer.weight, Transpose::no, layer.transpose);
    const Tensor y = test::poisoned({layer.s.N, layer.s.O}, DType::bf16);
    linear_forward(y, layer.x, layer.weight, layer.transpose, {});
    CHECK(relative_error(to_doubles(y), expected) < test::kFp8Bound);

    const Values bias = to_doubles(layer.bias), residual = to_doubles(layer.residual);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += bias[i % bias.size()] + residual[i];
    }
    linear_forward(y, layer.x, layer.weight, layer.transpose, layer.bias, layer.residual);
    CHECK(relative_error(to_doubles(y), expected) < 2 * test::kFp8Bound);
  });
}

TEST_CASE("8-bit products: the gradients of the input and of the weight") {
  for_every_layer([](const Layer& layer) {
    const auto& [s, transpose, x, weight, dy, bias, residual] = layer;
    const Tensor dx = test::poisoned({s.N, s.I}, DType::bf16);
    linear_backward_input(dx, dy, weight, transpose);
    CHECK(relative_error(to_doubles(dx), product(dy, weight, Transpose::no, opposite(transpose))) <
          test::kFp8Bound);

    const bool as_stored = transpose == Transpose::no;
    const Values dw =
        product(as_stored ? x : dy, as_stored ? dy : x, Transpose::yes, Transpose::no);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const Tensor dweight = test::normal_tensor(weight.values.shape(), dtype, "dweight");
      const Values before = to_doubles(dweight);
      const Tensor dbias = test::poisoned({s.O}, dtype);
      linear_backward_weight(dweight, dbias, x, dy, transpose, Accumulate::yes, Accumulate::no);
      Values expected = dw;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
      CHECK(relative_error(to_doubles(dweight), expected) < test::kFp8Bound);
      linear_backward_weight(dweight, {}, x, dy, transpose, Accumulate::no, Accumulate::no);
      CHECK(relative_error(to_doubles(dweight), dw) < test::kFp8Bound);
      Values sums(static_cast<std::size_t>(s.O));
      const Values gradient = to_doubles(expanded(dy));
      for (std::size_t i = 0; i < gradient.size(); ++i) sums[i % sums.size()] += gradient[i];
      CHECK(relative_error(to_doubles(dbias), sums) < test::kFp8Bound);
    }
  });
}

TEST_CASE("8-bit products: a GPU takes extents that are multiples of 16, and has the same terms") {
  for_every_layer([](const Layer& layer) {
    const auto& [s, transpose, x, weight, dy, bias, residual] = layer;
    const bool suits = test::kOnGpu && is_multiple(s.I) && is_multiple(s.O);
    const Tensor y = test::poisoned({s.N, s.O}, DType::bf16), slow = y.clone();
    CHECK(as_stored(y, x, Transpose::no, weight, transpose) == suits);
    linear_forward(slow, expanded(x), expanded(weight), transpose, {}, Tensor());
    if (suits) CHECK(relative_error(to_doubles(y), to_doubles(slow)) < test::kFp8Bound / 16);

    const bool suits_rows = suits && is_multiple(s.N);
    const Tensor dweight = test::poisoned({s.O, s.I}, DType::f32);
    CHECK(as_stored(dweight, dy, Transpose::yes, x, Transpose::no) == suits_rows);
    if (!suits) return;
    // Memory that is not aligned to 16 bytes.
    const Tensor slice = Tensor::zeros({s.N * s.I + 1}, DType::e4m3).slice(1, s.N * s.I + 1);
    const Factor unaligned(slice.reshape({s.N, s.I}), x.inverse_scale);
    CHECK_FALSE(as_stored(y, unaligned, Transpose::no, weight, Transpose::yes));
  });
}

TEST_CASE("8-bit products: factors by columns have the bits of factors by rows") {
  // With both copies, and with columns alone.
  const auto with_columns = [](const Factor& rows) {
    Factor both = rows;
    both.columns = Tensor::zeros({rows.size(1), rows.size(0)}, rows.values.dtype());
    fp8_transpose(both.columns, rows.values);
    return std::vector{both, both.by_columns()};
  };
  for_every_layer([&](const Layer& layer) {
    const auto& [s, transpose, x, weight, dy, bias, residual] = layer;
    const auto results = [&](const Factor& x_of, const Factor& weight_of, const Factor& dy_of) {
      const Tensor y = test::poisoned({s.N, s.O}, DType::bf16),
                   dx = test::poisoned({s.N, s.I}, DType::bf16),
                   dweight = test::poisoned(weight.values.shape(), DType::f32),
                   dbias = test::poisoned({s.O}, DType::f32);
      linear_forward(y, x_of, weight_of, transpose, bias);
      linear_backward_input(dx, dy_of, weight_of, transpose);
      linear_backward_weight(dweight, dbias, x_of, dy_of, transpose, Accumulate::no,
                             Accumulate::no);
      return std::vector{y, dx, dweight, dbias};
    };
    const std::vector<Tensor> expected = results(x, weight, dy);
    const std::vector<Factor> xs = with_columns(x), weights = with_columns(weight),
                              dys = with_columns(dy);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      const std::vector<Tensor> found = results(xs[i], weights[i], dys[i]);
      for (std::size_t j = 0; j < found.size(); ++j) {
        CAPTURE(i, j);
        CHECK(test::same_bits(found[j], expected[j]));
      }
    }
  });
}

TEST_CASE("8-bit products refuse one factor in 8 bits and one in another dtype") {
  const test::Rank rank;
  const Factor x = fp8_factor({4, 4}, DType::e4m3, "x", 1.0);
  const Tensor y = Tensor::zeros({4, 4}, DType::bf16);
  CHECK_THROWS_WITH(linear_forward(y, x, y.clone(), Transpose::no, {}),
                    Contains("a product of 8-bit numbers needs two 8-bit factors"));
}

}  // namespace tessera
