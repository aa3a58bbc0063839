// The feed-forward layer of a mixture of experts, against a loop over tokens and experts in f64.
#include "autograd/experts.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/checkpoint.h"
#include "tests/support/gradient_check.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {

using test::check_gradients;
using test::Inputs;
using test::leaf;
using test::normal_tensor;
using test::OwnedParameter;
using test::to_doubles;

namespace {

/// N tokens of C channels, E experts of F, k of them for each token.
struct Sizes {
  std::int64_t N, C, E, k, F;
};
constexpr Sizes kSmall = {5, 3, 4, 2, 2};

/// The two families: Qwen3-MoE and Llama 4.
struct Family {
  RouterWeights weights;
  ExpertOptions options;
};
constexpr Family kQwen3 = {RouterWeights::normalized_softmax,
                           {WeightLayout::out_in, WeighedInput::down}};
constexpr Family kLlama4 = {RouterWeights::sigmoid, {WeightLayout::in_out, WeighedInput::gate_up}};
constexpr Family kFamilies[] = {
    kQwen3,
    kLlama4,
    {RouterWeights::softmax, {WeightLayout::in_out, WeighedInput::down}},
    {RouterWeights::softmax, {WeightLayout::out_in, WeighedInput::gate_up}}};

Shape gate_up_shape(const Sizes& n, WeightLayout layout) {
  return layout == WeightLayout::out_in ? Shape{n.E, 2 * n.F, n.C} : Shape{n.E, n.C, 2 * n.F};
}
Shape down_shape(const Sizes& n, WeightLayout layout) {
  return layout == WeightLayout::out_in ? Shape{n.E, n.C, n.F} : Shape{n.E, n.F, n.C};
}

/// The weights of one layer of experts.
struct Layer {
  OwnedParameter gate_up, down;

  Layer(const Sizes& n, const Family& family, DType dtype = DType::f64)
      : gate_up("gate_up", gate_up_shape(n, family.options.layout), 0.7, dtype),
        down("down", down_shape(n, family.options.layout), 0.7, dtype) {}

  Variable operator()(const Variable& x, const Variable& logits, const Sizes& n,
                      const Family& family, const Variable& residual = {}) const {
    const Routing routing =
        route(logits, {.experts_per_token = n.k, .weights = family.weights, .bias = {}});
    return experts(x, routing, gate_up.parameter, down.parameter, family.options, residual);
  }
};

/// Element (i, o) of expert e's matrix with `in` inputs and `out` outputs.
double element(const std::vector<double>& w, WeightLayout layout, std::int64_t e, std::int64_t in,
               std::int64_t out, std::int64_t i, std::int64_t o) {
  return w[e * in * out + (layout == WeightLayout::out_in ? o * in + i : i * out + o)];
}

/// The layer as Transformers writes it: every expert sees every token, with weight 0 where it was not
/// chosen. Qwen3-MoE multiplies an expert's result by the weight, Llama 4 its input.
std::vector<double> dense(const Tensor& x, const Routing& routing, const Layer& layer,
                          const Sizes& n, const ExpertOptions& options) {
  const auto X = to_doubles(x), W = to_doubles(routing.weights.data());
  const auto G = to_doubles(layer.gate_up.data), D = to_doubles(layer.down.data);
  const auto ids = routing.experts.to_vector<std::int32_t>();
  std::vector<double> y(n.N * n.C, 0.0);
  for (std::int64_t t = 0; t < n.N; ++t) {
    for (std::int64_t e = 0; e < n.E; ++e) {
      double weight = 0.0;
      for (std::int64_t s = 0; s < n.k; ++s) weight += (ids[t * n.k + s] == e) * W[t * n.k + s];
      const bool of_input = options.weighed == WeighedInput::gate_up;
      for (std::int64_t f = 0; f < n.F; ++f) {
        double gate = 0.0, up = 0.0;
        for (std::int64_t c = 0; c < n.C; ++c) {
          const double value = (of_input ? weight : 1.0) * X[t * n.C + c];
          gate += value * element(G, options.layout, e, n.C, 2 * n.F, c, f);
          up += value * element(G, options.layout, e, n.C, 2 * n.F, c, n.F + f);
        }
        const double h = gate / (1.0 + std::exp(-gate)) * up;
        for (std::int64_t c = 0; c < n.C; ++c) {
          y[t * n.C + c] +=
              (of_input ? 1.0 : weight) * h * element(D, options.layout, e, n.F, n.C, f, c);
        }
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("experts is the sum over all experts of a dense layer, in every dtype") {
  const test::Rank rank;
  const Sizes n = {37, 24, 9, 3, 16};
  for (const Family& family : kFamilies) {
    for (const auto& [dtype, bound] : test::kPrecisions) {
      CAPTURE(name_of(dtype), static_cast<int>(family.weights));
      const Layer layer(n, family, dtype);
      const Tensor x = normal_tensor({n.N, n.C}, dtype, "x");
      const Variable logits(normal_tensor({n.N, n.E}, dtype, "logits"));
      const Routing routing =
          route(logits, {.experts_per_token = n.k, .weights = family.weights, .bias = {}});
      auto expected = dense(x, routing, layer, n, family.options);
      const auto layer_of = [&](const Variable& residual) {
        return to_doubles(experts(Variable(x), routing, layer.gate_up.parameter,
                                  layer.down.parameter, family.options, residual)
                              .data());
      };
      // Up to four roundings on the way: of gate and up, h, weighed rows and the experts' results.
      CHECK(test::relative_error(layer_of({}), expected) <= 2.0 * bound);
      const Tensor residual = normal_tensor({n.N, n.C}, dtype, "residual");
      const auto added = to_doubles(residual);
      for (std::size_t i = 0; i < added.size(); ++i) expected[i] += added[i];
      CHECK(test::relative_error(layer_of(Variable(residual)), expected) <= 2.0 * bound);
    }
  }
}

TEST_CASE("add_router_loss adds the gradient of router_loss, with terms set after forward",
          "[cpu]") {
  const test::Rank rank;
  const Tensor logits = leaf({2, 3, 5}, "logits"), factors = leaf({5}, "factors");
  const Tensor seed = leaf({6, 2}, "seed");
  const auto weights_of = [](const Variable& of) {
    return route(of, {.experts_per_token = 2, .weights = RouterWeights::softmax, .bias = {}})
        .weights;
  };
  const Variable once = Variable::leaf(logits), apart = Variable::leaf(logits);
  const auto terms = std::make_shared<RouterLossTerms>();
  const Variable weights = weights_of(add_router_loss(once, terms));
  *terms = {.factors = factors, .z = 0.25, .scale = 3.0};
  backward(weights, seed);

  backward(weights_of(apart), seed);
  backward(router_loss(apart, factors, 0.25), Tensor::full({1}, DType::f64, 3.0));
  CHECK(test::relative_error(to_doubles(once.gradient()), to_doubles(apart.gradient())) < 1e-14);
}

TEST_CASE("router_loss: gradients of the logits", "[cpu]") {
  const test::Rank rank;
  const Tensor factors = leaf({7}, "factors");
  for (const double z : {0.0, 0.2}) {
    const auto loss = [&](const Inputs& x) { return router_loss(x[0], factors, z); };
    check_gradients({leaf({2, 4, 7}, "logits")}, {}, loss);
    const auto scaled = [&](const Inputs& x) { return scale(loss(x), -0.75); };
    check_gradients({leaf({2, 4, 7}, "logits")}, {}, scaled);
  }
}

TEST_CASE("experts: gradients of tokens, logits and weights", "[cpu]") {
  const test::Rank rank;
  for (const Family& family : kFamilies) {
    for (const Sizes& n : {kSmall, Sizes{1, 2, 3, 3, 1}, Sizes{4, 2, 9, 1, 3}}) {
      CAPTURE(static_cast<int>(family.weights), n.E, n.k);
      Layer layer(n, family);
      check_gradients({leaf({n.N, n.C}, "x"), leaf({n.N, n.E}, "logits")},
                      {&layer.gate_up, &layer.down},
                      [&](const Inputs& in) { return layer(in[0], in[1], n, family); });
      check_gradients({leaf({n.N, n.C}, "x"), leaf({n.N, n.E}, "logits"), leaf({n.N, n.C}, "r")},
                      {}, [&](const Inputs& in) { return layer(in[0], in[1], n, family, in[2]); });
    }
  }
}

TEST_CASE("experts: a residual of another shape is refused") {
  const test::Rank rank;
  const Layer layer(kSmall, kQwen3, DType::f32);
  const auto zeros = [](std::int64_t rows, std::int64_t columns) {
    return Variable(Tensor::zeros({rows, columns}, DType::f32));
  };
  REQUIRE_THROWS_WITH(
      layer(zeros(kSmall.N, kSmall.C), zeros(kSmall.N, kSmall.E), kSmall, kQwen3, zeros(1, 2)),
      Catch::Contains("experts: the residual is f32 [1, 2]"));
}

TEST_CASE("experts: with frozen parts the other gradients keep their bits", "[cpu]") {
  const test::Rank rank;
  const Sizes n = kSmall;
  for (const Family& family : kFamilies) {
    std::vector<Tensor> expected;
    for (int frozen = 0; frozen < 16; ++frozen) {
      CAPTURE(static_cast<int>(family.weights), frozen);
      const Layer layer(n, family);
      layer.gate_up.parameter.set_trainable((frozen & 1) == 0);
      layer.down.parameter.set_trainable((frozen & 2) == 0);
      const Tensor tokens = leaf({n.N, n.C}, "x"), scores = leaf({n.N, n.E}, "logits");
      const Variable x = frozen & 4 ? Variable(tokens) : Variable::leaf(tokens);
      const Variable logits = frozen & 8 ? Variable(scores) : Variable::leaf(scores);
      const Variable y = layer(x, logits, n, family);
      REQUIRE(y.requires_gradient() == (frozen != 15));
      if (frozen == 15) continue;
      backward(y, leaf({n.N, n.C}, "seed"));
      const std::vector<Tensor> gradients = {layer.gate_up.gradient, layer.down.gradient,
                                             frozen & 4 ? Tensor() : x.gradient(),
                                             frozen & 8 ? Tensor() : logits.gradient()};
      if (frozen == 0) expected = gradients;
      for (int i = 0; i < 4; ++i) {
        if ((frozen >> i & 1) == 0) CHECK(test::same_bits(gradients[i], expected[i]));
      }
    }
  }
}

TEST_CASE("experts: recomputation gives the same bits") {
  const test::Rank rank;
  const Sizes n = {37, 24, 9, 3, 16};
  for (const Family& family : kFamilies) {
    std::vector<std::vector<Tensor>> runs;
    for (const bool recompute : {false, true}) {
      const Layer layer(n, family, DType::f32);
      const OwnedParameter router("router", {n.E, n.C}, 1.0, DType::f32);
      const auto block = [&](const Variable& in) {
        return layer(in, linear(in, router.parameter, Parameter()), n, family);
      };
      const Variable x = Variable::leaf(normal_tensor({n.N, n.C}, DType::f32, "x"));
      const Variable y = recompute ? checkpoint(block, x) : block(x);
      backward(y, normal_tensor({n.N, n.C}, DType::f32, "seed"));
      runs.push_back(
          {y.data(), x.gradient(), layer.gate_up.gradient, layer.down.gradient, router.gradient});
    }
    for (std::size_t i = 0; i < runs[0].size(); ++i) {
      CHECK(test::same_bits(runs[0][i], runs[1][i]));
    }
  }
}

TEST_CASE("experts: an expert without tokens has a gradient of zero, and adds nothing") {
  const test::Rank rank;
  const Sizes n = {6, 4, 3, 1, 2};
  for (const Family& family : kFamilies) {
    const Layer layer(n, family, DType::f32);
    // Expert 1 has no token.
    std::vector<double> scores;
    for (std::int64_t t = 0; t < n.N; ++t)
      scores.insert(scores.end(), {t % 2 ? 1.0 : 3.0, 0.0, 2.0});
    const Variable logits(test::tensor_of(scores, {n.N, n.E}, DType::f32));
    const Variable x(normal_tensor({n.N, n.C}, DType::f32, "x"));
    for (int times = 1; times <= 2; ++times) {
      backward(layer(x, logits, n, family), normal_tensor({n.N, n.C}, DType::f32, "seed"));
      for (const Tensor& gradient : {layer.gate_up.gradient, layer.down.gradient}) {
        for (std::int64_t e = 0; e < n.E; ++e) {
          double sum = 0.0;
          for (const double value : to_doubles(gradient.slice(e, e + 1))) sum += std::fabs(value);
          CHECK((sum == 0.0) == (e == 1));
        }
      }
    }
  }
}

TEST_CASE("experts keep the input, the weights and one activation for backward") {
  const test::Rank rank;
  const Sizes n = {512, 64, 8, 2, 96};
  for (const Family& family : kFamilies) {
    const Layer layer(n, family, DType::f32);
    const Variable x = Variable::leaf(normal_tensor({n.N, n.C}, DType::f32, "x"));
    const Variable logits = Variable::leaf(normal_tensor({n.N, n.E}, DType::f32, "logits"));
    const auto live = [] { return context().allocator().account()[Category::activations].current; };
    const auto before = live();
    const Variable y = layer(x, logits, n, family);
    // x and the logits are the caller's. New: y, gate_up of each row, and per row a weight, an expert
    // and a place. On a GPU a row has its slot, too.
    const std::int64_t rows = n.N * n.k;
    const std::int64_t expected =
        4 * (n.N * n.C + rows * 2 * n.F + (test::kOnGpu ? 4 : 3) * rows + n.E + 1);
    CHECK(live() - before == expected);
  }
}

TEST_CASE("experts refuses shapes that do not fit together") {
  const test::Rank rank;
  const Layer layer(kSmall, kQwen3, DType::f32);
  const auto call = [&](std::int64_t channels, std::int64_t count) {
    Sizes n = kSmall;
    n.E = count;
    layer(Variable(Tensor::zeros({n.N, channels}, DType::f32)),
          Variable(Tensor::zeros({n.N, count}, DType::f32)), n, kQwen3);
  };
  REQUIRE_THROWS_WITH(call(4, 4), Catch::Contains("experts: x is f32 [5, 4], gate_up [4, 4, 3]"));
  REQUIRE_THROWS_WITH(call(3, 5), Catch::Contains("for 5 experts"));
}

}  // namespace tessera
