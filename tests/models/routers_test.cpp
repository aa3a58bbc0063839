// Routers of a model: their counts, the losses with gradients, and the steps in which biases move.
#include "models/routers.h"

#include <catch2/catch.hpp>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "models/moe_mlp.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::same_bits;
using test::to_doubles;
using Counts = std::vector<std::int64_t>;

constexpr std::int64_t kExperts = 5, kTokens = 12;

/// Two layers of routers, without experts.
struct TwoLayers {
  Routers routers{kExperts, 2, RouterWeights::normalized_softmax};
  std::vector<Variable> logits;
  std::vector<Routing> routings;

  explicit TwoLayers(const RouterTraining& training, DType dtype = DType::f32) {
    for (const char* name : {"first", "second"}) {
      routers.add_layer(name);
      logits.push_back(Variable::leaf(normal_tensor({kTokens, kExperts}, dtype, name, 2.0)));
    }
    routers.set_training(training);
  }

  /// A forward pass in training. Returns the sum of all weights, whose own gradients vanish: a
  /// token's normalized weights add up to 1.
  Variable forward() {
    routers.start_forward();
    routings.clear();
    for (std::size_t layer = 0; layer < 2; ++layer) {
      routings.push_back(
          routers.route(static_cast<std::int64_t>(layer), logits[layer], /*training=*/true));
    }
    routers.finish_forward();
    return add(routings[0].weights, routings[1].weights);
  }
  void differentiate() {
    const Variable weights = forward();
    backward(weights, Tensor::full(weights.shape(), weights.dtype(), 1.0));
  }
  Counts counts_of_layer(std::size_t layer) const {
    return expert_counts(routings[layer].order.offsets);
  }
};

Counts joined(const Counts& a, const Counts& b, std::int64_t times) {
  Counts result;
  for (const Counts& part : {a, b}) {
    for (const std::int64_t count : part) result.push_back(times * count);
  }
  return result;
}

/// The gradient of `scale` times the sum of both layers' losses.
std::vector<std::vector<double>> gradients_of_losses(
    const TwoLayers& layers, const std::vector<std::vector<double>>& factors, double z,
    double scale) {
  std::vector<std::vector<double>> gradients;
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const Variable logits = Variable::leaf(layers.logits[layer].data());
    const Variable loss = router_loss(logits, Tensor::from(factors[layer], {kExperts}), z);
    backward(loss, Tensor::full({1}, DType::f64, scale));
    gradients.push_back(to_doubles(logits.gradient()));
  }
  return gradients;
}

void check_gradients(const TwoLayers& layers, const std::vector<std::vector<double>>& expected) {
  for (std::size_t layer = 0; layer < 2; ++layer) {
    CHECK(test::relative_error(to_doubles(layers.logits[layer].gradient()), expected[layer]) <
          1e-12);
  }
}

}  // namespace

TEST_CASE("routers count every micro-batch of a step, and nothing of the step before") {
  const test::Rank rank;
  TwoLayers layers({});
  layers.forward();  // before any step: not counted
  layers.routers.start_step({.tokens = 2 * kTokens, .micro_batches = 2});
  CHECK(layers.routers.counts() == Counts(2 * kExperts, 0));
  layers.forward();
  layers.forward();
  const Counts counts = joined(layers.counts_of_layer(0), layers.counts_of_layer(1), /*times=*/2);
  CHECK(layers.routers.counts() == counts);
  layers.routers.finish_step(counts);
  layers.routers.start_step({.tokens = kTokens});
  CHECK(layers.routers.counts() == Counts(2 * kExperts, 0));
  REQUIRE_THROWS_WITH(layers.routers.finish_step({1, 2}),
                      Catch::Contains("2 counts; expected 2 layers of 5 experts"));
}

TEST_CASE("hf: the losses of all layers depend on the loads of all layers", "[cpu]") {
  const test::Rank rank;
  TwoLayers layers({.balance = Balance::hf, .loss_coefficient = 0.1, .z_loss = 0.01}, DType::f64);
  layers.routers.start_step({.tokens = kTokens, .micro_batches = 1, .loss_scale = 4.0});
  layers.differentiate();
  Counts sums = layers.counts_of_layer(0);
  for (std::size_t e = 0; e < kExperts; ++e) sums[e] += layers.counts_of_layer(1)[e];
  const auto factors = balance_factors(sums, 0.1, 2 * kTokens, 2 * kTokens);
  const double z = 0.01 / (2 * kTokens);
  check_gradients(layers, gradients_of_losses(layers, {factors, factors}, z, 4.0));

  double loss = 0.0;
  for (const Variable& logits : layers.logits) {
    const Variable constant(logits.data());
    loss += router_loss(constant, Tensor::from(factors, {kExperts}), z).data().item<double>();
  }
  CHECK(layers.routers.router_losses().item<float>() == Approx(loss).epsilon(1e-6));
}

TEST_CASE("lagged: each layer's loss depends on its own loads of the step before", "[cpu]") {
  const test::Rank rank;
  TwoLayers layers({.balance = Balance::lagged, .loss_coefficient = 0.1}, DType::f64);
  const Counts counts = {9, 1, 2, 8, 4, 0, 3, 5, 7, 9};
  layers.routers.start_step({.tokens = kTokens});
  layers.differentiate();
  CHECK(layers.routers.router_losses().item<float>() == 0.0f);  // the first step has no loads yet
  layers.routers.finish_step(counts);

  for (Variable& logits : layers.logits) logits = Variable::leaf(logits.data());
  layers.routers.start_step({.tokens = 3 * kTokens, .micro_batches = 3});
  layers.differentiate();
  const std::vector<std::vector<double>> factors = {
      balance_factors(Counts(counts.begin(), counts.begin() + kExperts), 0.1, kTokens, 6 * kTokens),
      balance_factors(Counts(counts.begin() + kExperts, counts.end()), 0.1, kTokens, 6 * kTokens)};
  check_gradients(layers, gradients_of_losses(layers, factors, 0.0, 1.0));
}

TEST_CASE("bias: the choice follows the biases, which move when a step ends and not before") {
  const test::Rank rank;
  TwoLayers layers({.balance = Balance::bias, .bias_rate = 10.0});
  layers.routers.start_step({.tokens = kTokens});
  layers.forward();
  const Counts first = layers.counts_of_layer(0);
  layers.forward();
  CHECK(layers.counts_of_layer(0) == first);
  // Experts 3 and 4 of the first layer had no token; d = (-1, -1, -1, 1, 1), its mean -1/5.
  layers.routers.finish_step({8, 8, 8, 0, 0, 3, 3, 3, 3, 3});
  CHECK(layers.routers.biases()[0].values == std::vector<float>{-8.0f, -8.0f, -8.0f, 12.0f, 12.0f});
  CHECK(layers.routers.biases()[1].values == std::vector<float>(kExperts, 0.0f));
  layers.routers.start_step({.tokens = kTokens});
  layers.forward();
  CHECK(layers.counts_of_layer(0) == Counts{0, 0, 0, kTokens, kTokens});
  const ExpertLoads loads = layers.routers.loads();
  CHECK(loads.imbalance == std::vector<double>{5.0 / 3.0, 1.0});
  CHECK(loads.idle == 2);
}

TEST_CASE("biases are one finite number per expert") {
  const test::Rank rank;
  TwoLayers layers({});
  CHECK_FALSE(layers.routers.has_biases());
  REQUIRE_THROWS_WITH(layers.routers.set_bias(1, {1.0f}),
                      "second.e_score_correction_bias has 1 values; expected 5");
  REQUIRE_THROWS_WITH(layers.routers.set_bias(0, {1.0f, 2.0f, NAN, 0.0f, 0.0f}),
                      Catch::Contains("NaN or infinite"));
  layers.routers.set_training({.balance = Balance::bias});
  CHECK(layers.routers.has_biases());
}

TEST_CASE("force_balance gives every expert the same load, in training only") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(name_of(dtype));
    Routers routers(4, 2, RouterWeights::normalized_softmax);
    routers.add_layer("only");
    routers.set_training({.force_balance = true});
    const Variable logits(normal_tensor({5, 4, 4}, dtype, "unbalanced", 3.0));
    CHECK(expert_counts(routers.route(0, logits, true).order.offsets) == Counts{10, 10, 10, 10});
    CHECK(expert_counts(routers.route(0, logits, false).order.offsets) != Counts{10, 10, 10, 10});
    // The chosen logits are as they were: so are their weights.
    const auto weights = to_doubles(routers.route(0, logits, true).weights.data());
    const auto l = to_doubles(logits.data());
    CHECK(weights[0] == Approx(1.0 / (1.0 + std::exp(l[1] - l[0]))).epsilon(4e-3));
    CHECK(weights[2] == Approx(1.0 / (1.0 + std::exp(l[7] - l[6]))).epsilon(4e-3));
  }
}

TEST_CASE("a recomputed mixture of experts has the same bits and is counted once") {
  const test::Rank rank;
  const MoeMlpOptions options = {.width = 6,
                                 .experts = kExperts,
                                 .expert_width = 4,
                                 .shared_width = 7,
                                 .router_name = "router",
                                 .experts_as = {},
                                 .initializer = Initializer::zeros()};
  struct Run {
    Counts counts;
    Tensor y, dx;
  };
  const auto run = [&](bool recomputed) {
    const auto routers = std::make_shared<Routers>(kExperts, 2, RouterWeights::softmax);
    const MoeMlp mlp("mlp", options, routers);
    std::vector<test::OwnedParameter> owned;
    mlp.visit_parameters([&](const Parameter& parameter) {
      test::OwnedParameter values(parameter.name(), parameter.shape(), 0.5, DType::f32);
      parameter.open(values.data);
      parameter.open_gradient(values.gradient);
      parameter.reset_gradient();
      owned.push_back(values);
    });
    CHECK(owned.size() == 6);
    CHECK(owned[0].parameter.name() == "mlp.router.weight");
    CHECK(owned[1].parameter.name() == "mlp.experts.gate_up_proj");
    routers->set_training({.balance = Balance::hf, .loss_coefficient = 0.5, .z_loss = 0.1});
    routers->start_step({.tokens = kTokens});
    routers->start_forward();
    const Variable x = Variable::leaf(normal_tensor({3, 4, 6}, DType::f32, "x"));
    const auto forward = [&](const Variable& input) { return mlp(input, /*training=*/true); };
    const Variable y = recomputed ? checkpoint(forward, x) : forward(x);
    routers->finish_forward();
    backward(y, normal_tensor({3, 4, 6}, DType::f32, "dy"));
    return Run{routers->counts(), y.data(), x.gradient()};
  };
  const Run kept = run(false), again = run(true);
  CHECK(kept.counts == again.counts);
  std::int64_t total = 0;
  for (const std::int64_t count : again.counts) total += count;
  CHECK(total == 2 * kTokens);
  CHECK(same_bits(kept.y, again.y));
  CHECK(same_bits(kept.dx, again.dx));
}

TEST_CASE("a shared expert adds to the routed ones", "[cpu]") {
  const test::Rank rank;
  const auto routers = std::make_shared<Routers>(2, 1, RouterWeights::sigmoid);
  const MoeMlp mlp("mlp",
                   {.width = 4,
                    .experts = 2,
                    .expert_width = 3,
                    .shared_width = 3,
                    .experts_as = {WeightLayout::in_out, WeighedInput::gate_up},
                    .initializer = Initializer::zeros()},
                   routers);
  std::vector<test::OwnedParameter> owned;
  mlp.visit_parameters([&](const Parameter& parameter) {
    test::OwnedParameter values(parameter.name(), parameter.shape(), 0.5, DType::f64);
    parameter.open(values.data);
    owned.push_back(values);
  });
  const NoGradient no_gradient;
  const Variable x(normal_tensor({5, 4}, DType::f64, "x"));
  const auto whole = to_doubles(mlp(x, false).data());
  // The parameters in order: router, gate_up, down, and the shared expert's three.
  const Tensor routed_down = owned[2].data, zero = Tensor::zeros(routed_down.shape(), DType::f64);
  owned[2].data.copy_from(zero);
  const auto shared = to_doubles(mlp(x, false).data());
  const Variable alone = linear(swiglu(linear(x, owned[3].parameter, Parameter()),
                                       linear(x, owned[4].parameter, Parameter())),
                                owned[5].parameter, Parameter());
  CHECK(test::relative_error(shared, to_doubles(alone.data())) < 1e-14);
  CHECK(test::relative_error(whole, shared) > 0.1);
}

}  // namespace tessera
