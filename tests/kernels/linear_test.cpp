#include <catch2/catch.hpp>

#include "kernels/linear/op.h"
#include "kernels/swiglu/op.h"
#include "tests/kernels/product_reference.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;
using Values = std::vector<double>;

constexpr Transpose kBoth[] = {Transpose::no, Transpose::yes};

struct Size {
  std::int64_t N, I, O;
};
// A GPU fuses gelu where a row is a multiple of 8 elements, and bias where there are rows.
const Size kSizes[] = {{1, 1, 1}, {5, 3, 7}, {33, 24, 40}, {4, 16, 13}, {0, 3, 8}};

double gelu(double x, GeluForm form) {
  if (form == GeluForm::exact) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  const double u = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}
double gelu_derivative(double x, GeluForm form) {
  constexpr double h = 1e-6;
  return (gelu(x + h, form) - gelu(x - h, form)) / (2 * h);
}

/// The tensors of one layer and their values.
struct Layer {
  Size s;
  Transpose transpose;
  DType dtype;
  Tensor x, weight, bias, dy;
  Values x_values, bias_values, dy_values;

  Layer(const Size& size, Transpose t, DType type)
      : s(size),
        transpose(t),
        dtype(type),
        x(test::normal_tensor({s.N, s.I}, dtype, "x")),
        weight(test::normal_tensor(weight_shape(), dtype, "weight", 1.0 / std::sqrt(s.I))),
        bias(test::normal_tensor({s.O}, dtype, "bias")),
        dy(test::normal_tensor({s.N, s.O}, dtype, "dy")),
        x_values(to_doubles(x)),
        bias_values(to_doubles(bias)),
        dy_values(to_doubles(dy)) {}

  Shape weight_shape() const {
    return transpose == Transpose::no ? Shape{s.I, s.O} : Shape{s.O, s.I};
  }
  Values forward(bool with_bias) const {
    Values y = test::product_reference(x, weight, Transpose::no, transpose).value;
    for (std::size_t j = 0; with_bias && j < y.size(); ++j) y[j] += bias_values[j % s.O];
    return y;
  }
  Values input_gradient() const {
    return test::product_reference(dy, weight, Transpose::no, opposite(transpose)).value;
  }
  Values weight_gradient() const {
    const bool as_stored = transpose == Transpose::no;
    return test::product_reference(as_stored ? x : dy, as_stored ? dy : x, Transpose::yes).value;
  }
  Values bias_gradient() const {
    Values sums(s.O, 0.0);
    for (std::size_t j = 0; j < dy_values.size(); ++j) sums[j % s.O] += dy_values[j];
    return sums;
  }
};

template <typename Check>
void for_every_layer(Check check) {
  for (const test::Precision& precision : test::kPrecisions) {
    for (const Size& size : kSizes) {
      for (const Transpose transpose : kBoth) {
        INFO(name_of(precision.dtype) << " " << size.N << " x " << size.I << " x " << size.O
                                      << (transpose == Transpose::yes ? " transposed" : ""));
        check(Layer(size, transpose, precision.dtype), precision.bound);
      }
    }
  }
}

}  // namespace

TEST_CASE("linear_swiglu_forward: gate and up of the layer, and SwiGLU of what is stored") {
  const test::Rank rank;
  for (const test::Precision& precision : test::kPrecisions) {
    for (const Size& size : {Size{1, 1, 2}, Size{5, 3, 6}, Size{33, 24, 80}, Size{140, 16, 272}}) {
      for (const Transpose transpose : kBoth) {
        const Layer layer(size, transpose, precision.dtype);
        for (const bool with_bias : {false, true}) {
          CAPTURE(name_of(precision.dtype), size.N, size.I, size.O, with_bias);
          const Tensor gate_up = test::poisoned({size.N, size.O}, precision.dtype);
          const Tensor y = test::poisoned({size.N, size.O / 2}, precision.dtype);
          linear_swiglu_forward(y, gate_up, layer.x, layer.weight, transpose,
                                with_bias ? layer.bias : Tensor());
          CHECK(relative_error(to_doubles(gate_up), layer.forward(with_bias)) <=
                2 * precision.bound);
          const Tensor expected = test::poisoned(y.shape(), precision.dtype);
          swiglu_forward(expected, first_half(gate_up), second_half(gate_up));
          CHECK(test::same_bits(y, expected));
        }
      }
    }
  }
}

TEST_CASE("linear_forward is x W + b") {
  const test::Rank rank;
  for_every_layer([](const Layer& layer, double bound) {
    const Tensor y = test::poisoned({layer.s.N, layer.s.O}, layer.dtype);
    linear_forward(y, layer.x, layer.weight, layer.transpose, {});
    CHECK(relative_error(to_doubles(y), layer.forward(false)) <= bound);
    linear_forward(y, layer.x, layer.weight, layer.transpose, layer.bias);
    // The separate steps round twice.
    CHECK(relative_error(to_doubles(y), layer.forward(true)) <= 2 * bound);
  });
}

TEST_CASE("linear_forward adds a residual") {
  const test::Rank rank;
  for_every_layer([](const Layer& layer, double bound) {
    const Tensor residual = test::normal_tensor({layer.s.N, layer.s.O}, layer.dtype, "residual");
    const Values added = to_doubles(residual);
    for (const bool with_bias : {false, true}) {
      const Tensor y = test::poisoned({layer.s.N, layer.s.O}, layer.dtype);
      linear_forward(y, layer.x, layer.weight, layer.transpose, with_bias ? layer.bias : Tensor(),
                     residual);
      Values expected = layer.forward(with_bias);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += added[i];
      CHECK(relative_error(to_doubles(y), expected) <= 3 * bound);  // each step may round
    }
  });
}

TEST_CASE("linear_forward: a wrong residual is named") {
  const test::Rank rank;
  const Layer layer({5, 3, 7}, Transpose::no, DType::f32);
  const Tensor y = Tensor::zeros({5, 7}, DType::f32);
  const auto run = [&](const Tensor& residual) {
    linear_forward(y, layer.x, layer.weight, layer.transpose, layer.bias, residual);
  };
  REQUIRE_THROWS_WITH(run(Tensor::zeros({5, 6}, DType::f32)), Catch::Contains("residual"));
  REQUIRE_THROWS_WITH(run(Tensor::zeros({5, 7}, DType::bf16)), Catch::Contains("residual"));
  REQUIRE_THROWS_WITH(run(y), Catch::Contains("residual"));
}

TEST_CASE("linear_gelu_forward is gelu(x W + b) and saves the input of gelu") {
  const test::Rank rank;
  const GeluForm form = GENERATE(GeluForm::tanh, GeluForm::exact);
  for_every_layer([form](const Layer& layer, double bound) {
    for (const bool with_bias : {true, false}) {
      const Tensor y = test::poisoned({layer.s.N, layer.s.O}, layer.dtype);
      const Tensor pre = test::poisoned({layer.s.N, layer.s.O}, layer.dtype);
      linear_gelu_forward(y, pre, layer.x, layer.weight, layer.transpose,
                          with_bias ? layer.bias : Tensor(), form);
      Values expected = layer.forward(with_bias);
      CHECK(relative_error(to_doubles(pre), expected) <= 2 * bound);
      for (double& value : expected) value = gelu(value, form);
      // gelu's argument is rounded, then its value. A GPU's fused gelu errs by 2^-11 more in 16 bits.
      CHECK(relative_error(to_doubles(y), expected) <= 4 * bound);
    }
  });
}

TEST_CASE("linear_backward_input is dy W^T, times gelu's derivative where the input was a gelu") {
  const test::Rank rank;
  const GeluForm form = GENERATE(GeluForm::tanh, GeluForm::exact);
  for_every_layer([form](const Layer& layer, double bound) {
    const Tensor dx = test::poisoned({layer.s.N, layer.s.I}, layer.dtype);
    linear_backward_input(dx, layer.dy, layer.weight, layer.transpose);
    Values expected = layer.input_gradient();
    CHECK(relative_error(to_doubles(dx), expected) <= bound);
    linear_backward_input(dx, layer.dy, layer.weight, layer.transpose, layer.x, form);
    for (std::size_t j = 0; j < expected.size(); ++j) {
      expected[j] *= gelu_derivative(layer.x_values[j], form);
    }
    // The separate steps round twice; the reference differentiates numerically.
    CHECK(relative_error(to_doubles(dx), expected) <= 2 * bound + 1e-9);
  });
}

TEST_CASE("the exact form of gelu is not the form with tanh, in 16 bits too") {
  const test::Rank rank;
  constexpr GeluForm kForm = GeluForm::exact;
  const auto require_all = [](const Tensor& tensor, double value) {
    for (const double each : to_doubles(tensor)) REQUIRE(each == Approx(value).epsilon(1.0 / 128));
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto eight = [&](double value, const Shape& shape) {
      return test::tensor_of(Values(8, value), shape, dtype);
    };
    // At -3 the two forms differ by 10 %, and their derivatives by 3 %.
    const Tensor y = test::poisoned({8, 8}, dtype), pre = test::poisoned({8, 8}, dtype);
    linear_gelu_forward(y, pre, eight(-3.0, {8, 1}), eight(1.0, {1, 8}), Transpose::no,
                        eight(0.0, {8}), kForm);
    require_all(y, gelu(-3.0, kForm));
    const Tensor ones = eight(1.0, {8, 1});
    linear_backward_input(y, ones, ones, Transpose::no, pre, kForm);
    require_all(y, gelu_derivative(-3.0, kForm));
  }
}

TEST_CASE("linear_backward_weight is x^T dy and dy's column sums, overwriting or accumulating") {
  const test::Rank rank;
  for_every_layer([](const Layer& layer, double bound) {
    const DType wide = statistics_dtype(layer.dtype);
    struct Case {
      DType dweight, dbias;
      Accumulate weight, bias;
    };
    for (const auto& [dweight_type, dbias_type, weight, bias] :
         {Case{wide, wide, Accumulate::no, Accumulate::no},
          Case{layer.dtype, layer.dtype, Accumulate::no, Accumulate::no},
          Case{wide, layer.dtype, Accumulate::no, Accumulate::no},
          Case{wide, wide, Accumulate::yes, Accumulate::yes},
          Case{wide, wide, Accumulate::yes, Accumulate::no},
          Case{layer.dtype, layer.dtype, Accumulate::no, Accumulate::yes}}) {
      Values dw = layer.weight_gradient(), db = layer.bias_gradient();
      const auto start = [](const Shape& shape, DType dtype, Accumulate mode, Values& expected) {
        if (mode == Accumulate::no) return test::poisoned(shape, dtype);
        const Tensor before = test::normal_tensor(shape, dtype, "before");
        const Values values = to_doubles(before);
        for (std::size_t j = 0; j < values.size(); ++j) expected[j] += values[j];
        return before;
      };
      const Tensor dweight = start(layer.weight_shape(), dweight_type, weight, dw);
      const Tensor dbias = start({layer.s.O}, dbias_type, bias, db);
      linear_backward_weight(dweight, dbias, layer.x, layer.dy, layer.transpose, weight, bias);
      // Sums of terms of either sign may be much smaller than the terms.
      CHECK(relative_error(to_doubles(dweight), dw) <= bound);
      CHECK(relative_error(to_doubles(dbias), db) <= bound);
    }
    const Tensor dweight = test::poisoned(layer.weight_shape(), wide);
    linear_backward_weight(dweight, {}, layer.x, layer.dy, layer.transpose, Accumulate::no,
                           Accumulate::no);
    CHECK(relative_error(to_doubles(dweight), layer.weight_gradient()) <= bound);
  });
}

TEST_CASE("linear gives equal bits to equal calls, at any address") {
  const test::Rank rank;
  const Layer layer({33, 24, 40}, Transpose::no, DType::bf16);
  const auto run = [&](const Tensor& x) {
    const Tensor y = test::poisoned({33, 40}, DType::bf16), pre = y.clone();
    linear_gelu_forward(y, pre, x, layer.weight, layer.transpose, layer.bias);
    return y;
  };
  const Tensor first = run(layer.x);
  const Tensor room = Tensor::zeros({35, 24}, DType::bf16);
  room.slice(1, 34).copy_from(layer.x);
  CHECK(test::same_bits(run(room.slice(1, 34)), first));
  CHECK(test::same_bits(run(layer.x), first));
}

TEST_CASE("linear: layers of one shape use their own bias and save their own input of gelu") {
  const test::Rank rank;
  for (const test::Precision& precision : test::kPrecisions) {
    std::vector<Layer> layers(2, Layer({33, 24, 40}, Transpose::no, precision.dtype));
    layers[1].bias = test::normal_tensor({40}, precision.dtype, "another bias");
    layers[1].bias_values = to_doubles(layers[1].bias);
    std::vector<Tensor> kept;  // so that no two lie at one address
    for (const Layer& layer : layers) {
      const Tensor y = kept.emplace_back(test::poisoned({33, 40}, precision.dtype));
      const Tensor pre = kept.emplace_back(test::poisoned({33, 40}, precision.dtype));
      const Values expected = layer.forward(true);
      linear_forward(y, layer.x, layer.weight, layer.transpose, layer.bias);
      CHECK(relative_error(to_doubles(y), expected) <= 2 * precision.bound);
      linear_gelu_forward(y, pre, layer.x, layer.weight, layer.transpose, layer.bias);
      CHECK(relative_error(to_doubles(pre), expected) <= 2 * precision.bound);
    }
  }
}

TEST_CASE("linear refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto zeros = [](const Shape& shape, DType dtype = DType::f32) {
    return Tensor::zeros(shape, dtype);
  };
  const Tensor y = zeros({4, 3}), x = zeros({4, 2}), weight = zeros({2, 3}), bias = zeros({3});
  const auto no = Transpose::no;
  REQUIRE_NOTHROW(linear_forward(y, x, weight, no, bias));
  REQUIRE_THROWS_WITH(linear_forward(y, x, weight, Transpose::yes, bias),
                      Contains("linear_forward: weight is f32 [2, 3]; its shape must be [3, 2]"));
  REQUIRE_THROWS_WITH(linear_forward(y, x, weight, no, zeros({2})),
                      Contains("bias is f32 [2]; its shape must be [3]"));
  REQUIRE_THROWS_WITH(linear_forward(y, x, weight, no, zeros({3}, DType::bf16)),
                      Contains("dtypes must be equal"));
  REQUIRE_THROWS_WITH(linear_forward(zeros({5, 3}), x, weight, no, bias), Contains("[4, 3]"));
  REQUIRE_THROWS_WITH(linear_forward(y, y.reshape({4, 3}), zeros({3, 3}), no, bias),
                      Contains("y overlaps x"));
  REQUIRE_THROWS_WITH(linear_gelu_forward(y, y, x, weight, no, bias), Contains("y overlaps pre"));
  REQUIRE_THROWS_WITH(linear_gelu_forward(y, zeros({3, 4}), x, weight, no, bias),
                      Contains("shapes must be equal"));
  REQUIRE_THROWS_WITH(linear_backward_input(x, y, weight, no, zeros({4, 3})),
                      Contains("pre is f32 [4, 3]"));
  REQUIRE_THROWS_WITH(linear_backward_input(x, y, weight, no, x), Contains("dx overlaps pre"));
  REQUIRE_THROWS_WITH(linear_backward_weight(weight, zeros({2}), x, y, no, {}, {}),
                      Contains("dbias is f32 [2]; its shape must be [3]"));
  REQUIRE_THROWS_WITH(linear_backward_weight(weight, bias, zeros({3, 2}), y, no, {}, {}),
                      Contains("dy is f32 [4, 3]; its shape must be [3, 3]"));
}

}  // namespace tessera
