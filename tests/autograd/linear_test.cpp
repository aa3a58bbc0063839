// Matrix products against finite differences in f64: linear layers, feed-forward layers, embeddings.
#include <catch2/catch.hpp>
#include <functional>

#include "autograd/operations.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::check_gradients;
using test::Inputs;
using test::leaf;
using test::normal_tensor;
using test::OwnedParameter;

TEST_CASE("linear: gradients for both weight layouts, with and without bias", "[cpu]") {
  const test::Rank rank;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    OwnedParameter weight("weight", out_in ? Shape{5, 3} : Shape{3, 5});
    OwnedParameter bias("bias", {5});
    check_gradients({leaf({2, 4, 3})}, {&weight, &bias}, [&](const Inputs& x) {
      return linear(x[0], weight.parameter, bias.parameter, layout);
    });
    check_gradients({leaf({7, 3})}, {&weight}, [&](const Inputs& x) {
      return linear(x[0], weight.parameter, Parameter(), layout);
    });
  }
}

TEST_CASE("linear: gradients with a residual, which may be the input too", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {3, 3}), bias("bias", {3});
  const auto out_in = WeightLayout::out_in;
  check_gradients({leaf({2, 4, 3}, "x"), leaf({2, 4, 3}, "residual")}, {&weight, &bias},
                  [&](const Inputs& x) {
                    return linear(x[0], weight.parameter, bias.parameter, out_in, x[1]);
                  });
  check_gradients({leaf({5, 3})}, {&weight}, [&](const Inputs& x) {
    return linear(x[0], weight.parameter, Parameter(), out_in, x[0]);
  });
}

TEST_CASE("linear: the input's gradient adds up with those of its other uses", "[cpu]") {
  const test::Rank rank;
  OwnedParameter first("first", {3, 3}), second("second", {3, 3}), bias("bias", {3});
  check_gradients({leaf({2, 4, 3})}, {&first, &second, &bias}, [&](const Inputs& x) {
    const Variable before = linear(x[0], first.parameter, bias.parameter);
    const Variable after = linear(x[0], second.parameter, Parameter());
    return add(add(gelu(x[0]), before), add(after, scale(x[0], 0.5)));
  });
}

TEST_CASE("linear: gradients of joined weights and biases, apart in memory", "[cpu]") {
  const test::Rank rank;
  OwnedParameter q("q", {4, 3}), k("k", {2, 3}), v("v", {1, 3});
  OwnedParameter q_bias("q_bias", {4}), k_bias("k_bias", {2}), v_bias("v_bias", {1});
  const JoinedParameters weights({q.parameter, k.parameter, v.parameter});
  const JoinedParameters biases({q_bias.parameter, k_bias.parameter, v_bias.parameter});
  check_gradients({leaf({2, 5, 3})}, {&q, &k, &v, &q_bias, &k_bias, &v_bias},
                  [&](const Inputs& x) { return linear(x[0], weights, biases); });
}

namespace {

/// Three weights [n, 16] and their gradients, next to each other in memory or apart.
struct ThreeWeights {
  static constexpr std::int64_t kRows[] = {16, 8, 24};
  std::vector<Parameter> parts;
  std::vector<Tensor> gradients;
  Tensor values = normal_tensor({48, 16}, DType::f32, "weights"),
         all_gradients = test::poisoned({48, 16}, DType::f32);

  explicit ThreeWeights(bool neighbours) {
    const auto place = [&](const Tensor& all, std::int64_t begin, std::int64_t end) {
      return neighbours ? all.slice(begin, end) : all.slice(begin, end).clone();
    };
    for (std::int64_t i = 0, begin = 0; i < 3; begin += kRows[i++]) {
      parts.emplace_back("part." + std::to_string(i), Shape{kRows[i], 16}, Initializer::zeros());
      parts.back().open(place(values, begin, begin + kRows[i]));
      gradients.push_back(place(all_gradients, begin, begin + kRows[i]));
      parts.back().open_gradient(gradients.back());
    }
  }
};

/// The result, and the gradients of the input and of the weights that are trained, after two
/// contributions.
std::vector<Tensor> results_of(const ThreeWeights& weights) {
  const JoinedParameters joined(weights.parts);
  std::vector<Tensor> results;
  for (const char* name : {"first", "second"}) {
    const Variable x = Variable::leaf(normal_tensor({9, 16}, DType::f32, name));
    const Variable y = linear(x, joined, Parameter());
    backward(y, normal_tensor({9, 48}, DType::f32, "dy"));
    results.push_back(y.data());
    results.push_back(x.gradient());
  }
  for (std::size_t i = 0; i < weights.parts.size(); ++i) {
    if (weights.parts[i].trainable()) results.push_back(weights.gradients[i]);
  }
  return results;
}

}  // namespace

TEST_CASE(
    "joined weights give the same bits as neighbours in memory and apart, and frozen in part") {
  const test::Rank rank;
  for (int frozen = 0; frozen < 7; ++frozen) {
    CAPTURE(frozen);
    const ThreeWeights neighbours(true), apart(false);
    for (const ThreeWeights* weights : {&neighbours, &apart}) {
      for (int i = 0; i < 3; ++i) {
        weights->parts[static_cast<std::size_t>(i)].set_trainable((frozen >> i & 1) == 0);
      }
    }
    const auto expected = results_of(neighbours), results = results_of(apart);
    REQUIRE(expected.size() == results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      CAPTURE(i);
      CHECK(test::same_bits(results[i], expected[i]));
    }
    for (std::size_t i = 0; i < 3; ++i) {  // a frozen part's gradient is not touched
      if (neighbours.parts[i].trainable()) continue;
      const std::vector<float> untouched = neighbours.gradients[i].to_vector<float>();
      CHECK(std::all_of(untouched.begin(), untouched.end(), [](float x) { return x != x; }));
    }
  }
}

TEST_CASE("joined weights have the rows of separate products side by side") {
  const test::Rank rank;
  const ThreeWeights weights(true);
  const Variable x(normal_tensor({9, 16}, DType::f32, "x"));
  const auto joined = linear(x, JoinedParameters(weights.parts), Parameter()).data();
  const auto values = joined.to_vector<float>();
  std::int64_t first = 0;
  for (const Parameter& part : weights.parts) {
    const auto own = linear(x, part, Parameter()).data().to_vector<float>();
    const std::int64_t columns = part.shape()[0];
    for (std::int64_t n = 0; n < 9; ++n) {
      for (std::int64_t c = 0; c < columns; ++c) {
        CHECK(values[static_cast<std::size_t>(n * 48 + first + c)] ==
              Approx(own[static_cast<std::size_t>(n * columns + c)]).epsilon(1e-5).margin(1e-5));
      }
    }
    first += columns;
  }
}

TEST_CASE("neighbours are joined without a copy, parameters apart are not") {
  test::Rank rank;
  const ThreeWeights neighbours(true), apart(false);
  const auto workspace = [&] {
    return rank.context.allocator().account()[Category::workspace].current;
  };
  const auto before = workspace();
  const JoinedParameters joined(neighbours.parts);
  const Tensor view = joined.data();
  CHECK(view.raw() == neighbours.values.raw());
  CHECK(JoinedGradient(joined).window().raw() == neighbours.all_gradients.raw());
  CHECK(workspace() == before);
  const Tensor copy = JoinedParameters(apart.parts).data();
  CHECK(workspace() == before + 48 * 16 * 4);
  CHECK(test::same_bits(copy, view));
}

TEST_CASE("joined parameters: wrong parts are named", "[cpu]") {
  const Parameter a("a", {2, 3}, Initializer::zeros()), b("b", {2, 4}, Initializer::zeros());
  REQUIRE_THROWS_WITH(JoinedParameters({a, b}),
                      Catch::Contains("parameter 'b' of shape [2, 4] cannot be joined with 'a'"));
  REQUIRE_THROWS_WITH(JoinedParameters({a, Parameter()}), Catch::Contains("undefined"));
}

TEST_CASE("gelu_mlp: a residual of another shape is refused", "[cpu]") {
  const test::Rank rank;
  const OwnedParameter fc("fc", {6, 3}), proj("proj", {4, 6});
  const Variable x = Variable::leaf(Tensor::zeros({7, 3}, DType::f64));
  REQUIRE_THROWS_WITH(
      gelu_mlp(x, fc.parameter, Parameter(), proj.parameter, Parameter(), WeightLayout::out_in, x),
      Catch::Contains("gelu_mlp: the residual is") && Catch::Contains("[7, 4]"));
}

namespace {

/// Weights and biases by their shapes, with values and gradients of their own.
struct Layers {
  std::vector<Parameter> parameters;
  std::vector<Tensor> gradients;

  explicit Layers(const std::vector<Shape>& shapes) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Parameter& parameter =
          parameters.emplace_back("layer." + std::to_string(i), shapes[i], Initializer::zeros());
      parameter.open(normal_tensor(shapes[i], DType::f32, parameter.name(), 0.3));
      gradients.push_back(Tensor::zeros(shapes[i], DType::f32));
      parameter.open_gradient(gradients.back());
      parameter.reset_gradient();
    }
  }
};

using Mlp = std::function<Variable(const Variable& x, const std::vector<Parameter>& layers,
                                   const Variable& residual)>;

/// Two ways to compute an mlp of 8 channels have results and gradients within `bound` of each other,
/// or of the same bits if it is 0, with every choice of frozen parameters.
void check_same(const std::vector<Shape>& shapes, const Mlp& fused, const Mlp& separate,
                double bound) {
  const Tensor dy = normal_tensor({9, 8}, DType::f32, "dy");
  const auto results_of = [&](const Mlp& mlp, unsigned frozen) {
    const Layers layers(shapes);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      layers.parameters[i].set_trainable((frozen >> i & 1) == 0);
    }
    const Variable x = Variable::leaf(normal_tensor({9, 8}, DType::f32, "x"));
    const Variable residual = Variable::leaf(normal_tensor({9, 8}, DType::f32, "residual"));
    const Variable y = mlp(x, layers.parameters, residual);
    backward(y, dy.clone());
    std::vector<Tensor> results = layers.gradients;
    results.insert(results.end(), {y.data(), x.gradient(), residual.gradient()});
    return results;
  };
  for (unsigned frozen = 0; frozen < 1u << shapes.size(); ++frozen) {
    CAPTURE(frozen);
    const auto results = results_of(fused, frozen), expected = results_of(separate, frozen);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (bound == 0.0) {
        CHECK(test::same_bits(results[i], expected[i]));
      } else {
        CHECK(test::relative_error(test::to_doubles(results[i]), test::to_doubles(expected[i])) <=
              bound);
      }
    }
  }
}

}  // namespace

// Each of the operations has its own test of gradients.
TEST_CASE(
    "gelu_mlp is linear, gelu, linear, add, to the bit on the CPU, with any parameter frozen") {
  const test::Rank rank;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    const Shape fc = out_in ? Shape{16, 8} : Shape{8, 16},
                proj = out_in ? Shape{8, 16} : Shape{16, 8};
    check_same(
        {fc, {16}, proj, {8}},
        [&](const Variable& x, const auto& l, const Variable& residual) {
          return gelu_mlp(x, l[0], l[1], l[2], l[3], layout, residual);
        },
        [&](const Variable& x, const auto& l, const Variable& residual) {
          return add(residual, linear(gelu(linear(x, l[0], l[1], layout)), l[2], l[3], layout));
        },
        test::kOnGpu ? 2e-6 : 0.0);
    check_same(
        {fc, proj},
        [&](const Variable& x, const auto& l, const Variable& residual) {
          return add(residual, gelu_mlp(x, l[0], Parameter(), l[1], Parameter(), layout));
        },
        [&](const Variable& x, const auto& l, const Variable& residual) {
          return add(residual,
                     linear(gelu(linear(x, l[0], Parameter(), layout)), l[1], Parameter(), layout));
        },
        test::kOnGpu ? 2e-6 : 0.0);
  }
}

TEST_CASE("swiglu_mlp is linear, swiglu, linear, to the bit, with any parameter frozen") {
  const test::Rank rank;
  check_same(
      {{12, 8}, {12, 8}, {12}, {12}, {8, 12}, {8}},
      [](const Variable& x, const auto& l, const Variable& residual) {
        return swiglu_mlp(x, JoinedParameters({l[0], l[1]}), JoinedParameters({l[2], l[3]}), l[4],
                          l[5], residual);
      },
      [](const Variable& x, const auto& l, const Variable& residual) {
        const JoinedParameters weights({l[0], l[1]}), biases({l[2], l[3]});
        return linear(swiglu(linear(x, weights, biases)), l[4], l[5], WeightLayout::out_in,
                      residual);
      },
      0.0);
  check_same(
      {{24, 8}, {8, 12}},
      [](const Variable& x, const auto& l, const Variable& residual) {
        return add(residual, swiglu_mlp(x, l[0], Parameter(), l[1], Parameter()));
      },
      [](const Variable& x, const auto& l, const Variable& residual) {
        return add(residual, linear(swiglu(linear(x, l[0], Parameter())), l[1], Parameter()));
      },
      0.0);
}

TEST_CASE("swiglu_mlp: backward writes gradients over what it saved") {
  test::Rank rank;
  constexpr std::int64_t N = 6, C = 4, F = 32;
  OwnedParameter gate_up("gate_up", {2 * F, C}, 1.0, DType::f32),
      down("down", {C, F}, 1.0, DType::f32);
  const Variable x = Variable::leaf(normal_tensor({N, C}, DType::f32, "x"));
  const Variable y = swiglu_mlp(x, gate_up.parameter, Parameter(), down.parameter, Parameter());
  const Tensor dy = normal_tensor({N, C}, DType::f32, "dy");
  Allocator& allocator = rank.context.allocator();
  allocator.reset_peaks();
  const auto bytes = [&] { return allocator.account()[Category::activations]; };
  const std::int64_t before = bytes().current;
  backward(y, dy);
  // Backward frees tensors of F channels before it makes the gradient of x, of C channels.
  CHECK(bytes().peak == before);
}

TEST_CASE("matmul: gradients for all transposes, plain and batched", "[cpu]") {
  const test::Rank rank;
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      const Shape a = ta == Transpose::no ? Shape{3, 4} : Shape{4, 3};
      const Shape b = tb == Transpose::no ? Shape{4, 5} : Shape{5, 4};
      check_gradients({leaf(a, "a"), leaf(b, "b")}, {},
                      [&](const Inputs& x) { return matmul(x[0], x[1], ta, tb); });
      check_gradients({leaf({2, a[0], a[1]}, "a"), leaf({2, b[0], b[1]}, "b")}, {},
                      [&](const Inputs& x) { return matmul(x[0], x[1], ta, tb); });
    }
  }
}

TEST_CASE("embedding: gradients of rows used never, once and often", "[cpu]") {
  const test::Rank rank;
  OwnedParameter table("table", {6, 3});
  const Tensor ids = Tensor::from(std::vector<std::int32_t>{0, 4, 4, 1, 4, 5}, {2, 3});
  check_gradients({}, {&table}, [&](const Inputs&) { return embedding(ids, table.parameter); });
}

}  // namespace tessera
