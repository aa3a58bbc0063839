#include "models/balance.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/experts.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Counts = std::vector<std::int64_t>;

Routing route_two(const Variable& logits) {
  return route(logits,
               {.experts_per_token = 2, .weights = RouterWeights::normalized_softmax, .bias = {}});
}

}  // namespace

TEST_CASE("balance: hf is load_balancing_loss_func of Transformers, with its gradient", "[cpu]") {
  // transformers 5.23.0, models/qwen3_moe, whose softmax is f32: two layers, six tokens, five experts,
  // k = 2.
  const test::Rank rank;
  std::vector<Variable> logits;
  Counts counts(5, 0);
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<double> values;
    for (int t = 0; t < 6; ++t) {
      for (int e = 0; e < 5; ++e) {
        values.push_back(2.0 * std::sin(1.7 * layer + 0.9 * t + 2.3 * e + 0.4 * t * e));
      }
    }
    logits.push_back(Variable::leaf(Tensor::from(values, {6, 5})));
    const Counts of_layer = expert_counts(route_two(logits.back()).order.offsets);
    CHECK(of_layer == (layer == 0 ? Counts{2, 3, 2, 4, 1} : Counts{1, 2, 3, 4, 2}));
    for (std::size_t e = 0; e < 5; ++e) counts[e] += of_layer[e];
  }
  const Tensor factors = Tensor::from(balance_factors(counts, 1.0, 2 * 6, 2 * 6), {5});
  const Variable loss =
      add(router_loss(logits[0], factors, 0.0), router_loss(logits[1], factors, 0.0));
  CHECK(loss.data().item<double>() == Approx(2.0401206016540527).epsilon(1e-6));
  backward(loss);
  const auto first = logits[0].gradient().to_vector<double>();
  const std::vector<double> of_first = {-0.008167047742004899, -0.00639538559217154,
                                        -0.00019726333785127903, 0.02751423707540028,
                                        -0.012754540403372563};
  for (std::size_t e = 0; e < 5; ++e) CHECK(first[e] == Approx(of_first[e]).epsilon(1e-5));
  const auto last = logits[1].gradient().to_vector<double>();
  const std::vector<double> of_last = {-0.009189080399023643, -0.0003026131682621376,
                                       -0.008504502194216737, 0.019503561457889458,
                                       -0.0015073656963869048};
  for (std::size_t e = 0; e < 5; ++e) CHECK(last[25 + e] == Approx(of_last[e]).epsilon(1e-5));
}

TEST_CASE("balance: the bias moves against the load, and its mean stays") {
  std::vector<float> bias = {0.5f, 0.0f, -0.25f, 0.0f};
  // Mean 4: two experts below, one at it, one above. d = (1, 1, 0, -1), its mean 1/4.
  update_router_bias(bias, Counts{1, 2, 4, 9}, 0.5);
  CHECK(bias == std::vector<float>{0.875f, 0.375f, -0.375f, -0.625f});
  const std::vector<float> before = bias;
  update_router_bias(bias, Counts{3, 3, 3, 3}, 0.5);
  CHECK(bias == before);
  // 3 and 4 are on different sides of 15/4: the mean is not rounded.
  std::vector<float> zero(4, 0.0f);
  update_router_bias(zero, Counts{3, 4, 4, 4}, 1.0);
  CHECK(zero == std::vector<float>{1.5f, -0.5f, -0.5f, -0.5f});
  REQUIRE_THROWS_WITH(update_router_bias(zero, Counts{1}, 1.0),
                      Catch::Contains("4 biases and 1 counts"));
}

TEST_CASE("balance: the bias evens out a skewed router") {
  const test::Rank rank;
  const std::int64_t tokens = 256, experts = 8;
  auto values = test::to_doubles(test::normal_tensor({tokens, experts}, DType::f32, "logits"));
  for (std::int64_t i = 0; i < tokens * experts; ++i) values[i] += 0.4 * double(i % experts);
  const Variable logits(test::tensor_of(values, {tokens, experts}, DType::f32));
  std::vector<float> bias(experts, 0.0f);
  const auto counts = [&] {
    return expert_counts(route(logits, {.experts_per_token = 2,
                                        .weights = RouterWeights::softmax,
                                        .bias = Tensor::from(bias, {experts})})
                             .order.offsets);
  };
  CHECK(load_imbalance(counts()) > 2.0);
  for (int step = 0; step < 300; ++step) update_router_bias(bias, counts(), 1e-3);
  CHECK(load_imbalance(counts()) < 1.15);
}

TEST_CASE("balance: factors give k times the coefficient in perfect balance") {
  // 12 tokens, k = 2, 4 experts with 6 rows each: p = 1/4 everywhere.
  const auto factors = balance_factors(Counts{6, 6, 6, 6}, 0.01, 12, 12);
  double loss = 0.0;
  for (const double f : factors) loss += 12 * f * 0.25;
  CHECK(loss == Approx(0.02).epsilon(1e-14));
  REQUIRE_THROWS_WITH(balance_factors(Counts{1}, 0.01, 0, 12), Catch::Contains("0 counted tokens"));
}

TEST_CASE("balance: imbalance is the largest load over the mean") {
  CHECK(load_imbalance(Counts{5, 5, 5}) == 1.0);
  CHECK(load_imbalance(Counts{0, 12, 0, 0}) == 4.0);
  CHECK(load_imbalance(Counts{1, 2, 3}) == 1.5);
  CHECK(load_imbalance(Counts{0, 0}) == 1.0);
}

}  // namespace tessera
