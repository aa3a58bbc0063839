// Products of 8-bit factors with scales of blocks, against float64 products of the numbers that they hold.
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

using test::relative_error;
using test::to_doubles;
using Values = std::vector<double>;

struct Size {
  std::int64_t N, I, O;
};
// A Hopper GPU takes the first two for all products, the next for some, and the others for none.
constexpr Size kSizes[] = {{144, 272, 400}, {16, 16, 640}, {12, 144, 32}, {6, 16, 32},
                           {9, 24, 16},     {1, 1, 1},     {3, 300, 10}};

bool is_multiple(std::int64_t extent, std::int64_t of = 16) {
  return extent % of == 0;
}

/// Normal numbers. Their blocks differ in magnitude, in rows and in columns.
Factor factor(const Shape& shape, DType format, const std::string& name, Fp8Blocks blocks,
              double scale) {
  Values values = to_doubles(test::normal_tensor(shape, DType::f32, name, scale));
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    values[i] *= std::exp2(static_cast<double>((i / shape[1] * 3 + i % shape[1] / 50 * 5) % 9));
  }
  const auto matrix = [&](std::int64_t rows, std::int64_t depth) {
    return std::pair(Tensor::zeros({rows, depth}, format),
                     Tensor::zeros(fp8_scales_shape(blocks, rows, depth), DType::f32));
  };
  const auto [rows, inverse] = matrix(shape[0], shape[1]);
  const auto [columns, inverse_of_columns] = matrix(shape[1], shape[0]);
  fp8_quantize_blocks(rows, inverse, columns, inverse_of_columns,
                      test::tensor_of(values, shape, DType::bf16), blocks);
  Factor both(rows, inverse, columns);
  both.inverse_of_columns = inverse_of_columns;
  both.blocks = blocks;
  return both;
}

struct Layer {
  Size s;
  Transpose transpose;
  Factor x, weight, dy;

  Layer(const Size& size, Transpose t, DType gradients)
      : s(size),
        transpose(t),
        x(factor({s.N, s.I}, DType::e4m3, "x", Fp8Blocks::vectors, 0.1)),
        weight(factor(t == Transpose::yes ? Shape{s.O, s.I} : Shape{s.I, s.O}, DType::e4m3,
                      "weight", Fp8Blocks::squares, 1.0)),
        dy(factor({s.N, s.O}, gradients, "dy", Fp8Blocks::vectors, 1.0)) {}
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

Values product(const Tensor& a, const Tensor& b, Transpose ta, Transpose tb) {
  return test::product_reference(a, b, ta, tb).value;
}

/// c = op(a) op(b), if a GPU's tensor cores take the factors as they are stored.
bool as_stored(Out c, const Factor& a, Transpose ta, const Factor& b, Transpose tb) {
  if constexpr (kHasCuda) return test::kOnGpu && cuda::fp8_product(c, a, ta, b, tb, {}, {});
  return false;
}

}  // namespace

TEST_CASE("8-bit products with scales of blocks: a layer's result and the gradient of its input") {
  for_every_layer([](const Layer& layer) {
    const auto& [s, transpose, x, weight, dy] = layer;
    Values expected = product(expanded(x), expanded(weight), Transpose::no, transpose);
    const Tensor y = test::poisoned({s.N, s.O}, DType::bf16),
                 dx = test::poisoned({s.N, s.I}, DType::bf16),
                 bias = test::normal_tensor({s.O}, DType::bf16, "bias"),
                 residual = test::normal_tensor({s.N, s.O}, DType::bf16, "residual");
    linear_forward(y, x, weight, transpose, {});
    CHECK(relative_error(to_doubles(y), expected) < test::kFp8Bound);
    const Values added = to_doubles(bias), rest = to_doubles(residual);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += added[i % added.size()] + rest[i];
    }
    linear_forward(y, x, weight, transpose, bias, residual);
    CHECK(relative_error(to_doubles(y), expected) < 2 * test::kFp8Bound);
    linear_backward_input(dx, dy, weight, transpose);
    CHECK(relative_error(to_doubles(dx), product(expanded(dy), expanded(weight), Transpose::no,
                                                 opposite(transpose))) < test::kFp8Bound);
  });
}

TEST_CASE(
    "8-bit products with scales of blocks: the weight's gradient has the numbers of columns") {
  for_every_layer([](const Layer& layer) {
    const auto& [s, transpose, x, weight, dy] = layer;
    const bool is_stored = transpose == Transpose::no;
    const Tensor x8 = expanded(x.by_columns()), dy8 = expanded(dy.by_columns());
    Values expected =
        product(is_stored ? x8 : dy8, is_stored ? dy8 : x8, Transpose::yes, Transpose::no);
    const Tensor dweight = test::normal_tensor(weight.values.shape(), DType::f32, "dweight"),
                 dbias = test::poisoned({s.O}, DType::f32);
    const Values before = to_doubles(dweight);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    // Nothing reads the rows.
    const auto without_rows = [](Factor both) {
      both.values = Tensor::zeros(both.values.shape(), both.values.dtype());
      return both;
    };
    linear_backward_weight(dweight, dbias, without_rows(x), without_rows(dy), transpose,
                           Accumulate::yes, Accumulate::no);
    CHECK(relative_error(to_doubles(dweight), expected) < test::kFp8Bound);
    Values sums(static_cast<std::size_t>(s.O));
    const Values gradient = to_doubles(dy8);
    for (std::size_t i = 0; i < gradient.size(); ++i) sums[i % sums.size()] += gradient[i];
    CHECK(relative_error(to_doubles(dbias), sums) < 0x1p-18);
  });
}

TEST_CASE("8-bit products with scales of blocks: Hopper takes whole rows of 16, and rows by four") {
  for_every_layer([](const Layer& layer) {
    const auto& [s, transpose, x, weight, dy] = layer;
    const bool suits_weight = test::kOnGpu && is_multiple(s.I) && is_multiple(s.O),
               suits = suits_weight && is_multiple(s.N, 4);
    const Tensor y = test::poisoned({s.N, s.O}, DType::bf16), slow = y.clone(),
                 dx = test::poisoned({s.N, s.I}, DType::bf16),
                 dweight = test::poisoned({s.O, s.I}, DType::f32);
    CHECK(as_stored(y, x, Transpose::no, weight, transpose) == suits);
    linear_forward(slow, expanded(x), expanded(weight), transpose, {}, Tensor());
    if (suits) CHECK(relative_error(to_doubles(y), to_doubles(slow)) < 0x1p-10);
    CHECK(as_stored(dx, dy, Transpose::no, weight, opposite(transpose)) == suits);
    CHECK(as_stored(dweight, dy, Transpose::yes, x, Transpose::no) ==
          (suits_weight && is_multiple(s.N)));
    // The other copy has other blocks.
    const Factor by_columns = x.by_columns();
    CHECK_FALSE(as_stored(y, by_columns, Transpose::no, weight, transpose));
  });
}

}  // namespace tessera
