#include "kernels/router/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::to_doubles;

constexpr RouterWeights kKinds[] = {RouterWeights::softmax, RouterWeights::normalized_softmax,
                                    RouterWeights::sigmoid};

struct Sizes {
  std::int64_t tokens, experts, k;
};
const std::vector<Sizes> kSizes = {{1, 1, 1},   {5, 4, 2},   {7, 33, 33},  {9, 31, 3},
                                   {6, 128, 8}, {3, 300, 5}, {2, 1024, 7}, {0, 8, 2}};

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

/// The experts of one token in ascending order, by a full sort that keeps equal keys in order.
std::vector<std::int32_t> largest(const std::vector<double>& keys, std::int64_t k) {
  std::vector<std::int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return keys[a] > keys[b]; });
  order.resize(static_cast<std::size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<double> softmax(const std::vector<double>& logits) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const double l : logits) p.push_back(std::exp(l - maximum));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

struct Reference {
  std::vector<std::int32_t> experts;
  std::vector<double> weights, dlogits;
};

/// One token, with the Jacobian of each weight written out.
void route(Reference& to, const std::vector<double>& l, const std::vector<double>& bias,
           const double* g, std::int64_t k, RouterWeights kind) {
  const auto p = softmax(l);
  std::vector<double> keys = l;
  for (std::size_t e = 0; e < bias.size(); ++e) {
    keys[e] = (kind == RouterWeights::sigmoid ? sigmoid(l[e]) : p[e]) + bias[e];
  }
  const auto chosen = largest(keys, k);
  double chosen_sum = 0.0;
  for (const std::int32_t e : chosen) chosen_sum += p[e];
  std::vector<double> w, dl(l.size(), 0.0);
  for (const std::int32_t e : chosen) {
    w.push_back(kind == RouterWeights::sigmoid   ? sigmoid(l[e])
                : kind == RouterWeights::softmax ? p[e]
                                                 : p[e] / chosen_sum);
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (kind == RouterWeights::sigmoid) {
      dl[chosen[i]] += g[i] * w[i] * sigmoid(-l[chosen[i]]);
    } else if (kind == RouterWeights::softmax) {
      for (std::size_t j = 0; j < l.size(); ++j) {
        dl[j] += g[i] * w[i] * ((j == static_cast<std::size_t>(chosen[i])) - p[j]);
      }
    } else {
      for (std::size_t j = 0; j < chosen.size(); ++j) {
        dl[chosen[j]] += g[i] * w[i] * ((i == j) - w[j]);
      }
    }
  }
  to.experts.insert(to.experts.end(), chosen.begin(), chosen.end());
  to.weights.insert(to.weights.end(), w.begin(), w.end());
  to.dlogits.insert(to.dlogits.end(), dl.begin(), dl.end());
}

Reference reference(const Tensor& logits, const std::vector<double>& bias, const Tensor& dweights,
                    RouterWeights kind) {
  const auto l = to_doubles(logits), g = to_doubles(dweights);
  const std::int64_t E = logits.size(1), k = dweights.size(1);
  Reference result;
  for (std::int64_t n = 0; n < logits.size(0); ++n) {
    route(result, {l.begin() + n * E, l.begin() + (n + 1) * E}, bias, g.data() + n * k, k, kind);
  }
  return result;
}

struct Routed {
  Tensor weights, experts;
};
Routed forward(const Tensor& logits, const Tensor& bias, std::int64_t k, RouterWeights kind) {
  const std::int64_t N = logits.size(0);
  const Routed to{test::poisoned({N, k}, logits.dtype()), Tensor::empty({N, k}, DType::i32)};
  router_forward(to.weights, to.experts, logits, bias, kind);
  return to;
}

/// Logits of a grid, so that many are equal.
Tensor coarse_logits(const Shape& shape, DType dtype) {
  auto values = to_doubles(normal_tensor(shape, dtype, "logits", 2.0));
  for (double& x : values) x = std::round(2.0 * x) / 2.0;
  return test::tensor_of(values, shape, dtype);
}

double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : 4e-6 + test::unit_roundoff(dtype);
}

}  // namespace

TEST_CASE(
    "router: experts, weights and gradients follow the formulas, with ties to the lower index") {
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      for (const RouterWeights kind : kKinds) {
        CAPTURE(name_of(dtype), n.tokens, n.experts, n.k, static_cast<int>(kind));
        test::for_every_schedule([&] {
          const Tensor logits = coarse_logits({n.tokens, n.experts}, dtype);
          const Tensor dw = normal_tensor({n.tokens, n.k}, dtype, "dw");
          const Reference expected = reference(logits, {}, dw, kind);
          const Routed got = forward(logits, {}, n.k, kind);
          CHECK(got.experts.to_vector<std::int32_t>() == expected.experts);
          CHECK(test::worst_error(to_doubles(got.weights), expected.weights, 1e-6) <=
                tolerance(dtype));
          const Tensor dl = test::poisoned(logits.shape(), dtype);
          router_backward(dl, dw, logits, got.experts, kind);
          CHECK(test::worst_error(to_doubles(dl), expected.dlogits, 0.1) <= tolerance(dtype));
        });
      }
    }
  }
}

TEST_CASE("router: a bias changes the choice and not the weights") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const RouterWeights kind : kKinds) {
      CAPTURE(name_of(dtype), static_cast<int>(kind));
      const Tensor logits = normal_tensor({40, 37}, dtype, "logits");
      const Tensor bias = normal_tensor({37}, statistics_dtype(dtype), "bias", 0.5);
      const Tensor dw = normal_tensor({40, 5}, dtype, "dw");
      const Reference expected = reference(logits, to_doubles(bias), dw, kind);
      const Routed got = forward(logits, bias, 5, kind);
      const auto experts = got.experts.to_vector<std::int32_t>();
      CHECK(experts == expected.experts);
      CHECK(experts != reference(logits, {}, dw, kind).experts);
      CHECK(test::worst_error(to_doubles(got.weights), expected.weights, 1e-6) <= tolerance(dtype));
      const Tensor none = Tensor::zeros({37}, statistics_dtype(dtype));
      CHECK(test::same_bits(forward(logits, none, 5, kind).experts,
                            forward(logits, {}, 5, kind).experts));
    }
  }
}

TEST_CASE("router: weights have the values of Transformers' routers") {
  // Qwen3MoeTopKRouter and Llama4Router of transformers 5.23.0 on these logits in f32, k = 2; rows
  // by ascending expert.
  const test::Rank rank;
  const Tensor logits = Tensor::from(std::vector<float>{0.5f, -1.25f, 2.0f, 0.75f}, {1, 4});
  const auto weights = [&](RouterWeights kind) {
    return to_doubles(forward(logits, {}, 2, kind).weights);
  };
  CHECK(weights(RouterWeights::softmax)[0] == Approx(0.6458240747).epsilon(1e-6));
  CHECK(weights(RouterWeights::softmax)[1] == Approx(0.1850316972).epsilon(1e-6));
  CHECK(weights(RouterWeights::normalized_softmax)[0] == Approx(0.7772998214).epsilon(1e-6));
  CHECK(weights(RouterWeights::normalized_softmax)[1] == Approx(0.2227001339).epsilon(1e-6));
  CHECK(weights(RouterWeights::sigmoid)[0] == Approx(0.8807970881).epsilon(1e-6));
  CHECK(weights(RouterWeights::sigmoid)[1] == Approx(0.6791787148).epsilon(1e-6));
}

TEST_CASE("router: infinite, NaN and signed zero logits give k different experts") {
  const test::Rank rank;
  const float nan = std::nanf(""), inf = INFINITY;
  const Tensor logits = Tensor::from(std::vector<float>{nan, 1.0f, -nan, 2.0f,   //
                                                        -inf, -inf, -inf, -inf,  //
                                                        0.0f, -inf, 3e38f, inf,  //
                                                        -0.0f, 0.0f, -1.0f, -0.0f},
                                     {4, 4});
  for (const RouterWeights kind : kKinds) {
    const auto experts = forward(logits, {}, 3, kind).experts.to_vector<std::int32_t>();
    CHECK(experts == std::vector<std::int32_t>{0, 2, 3, 0, 1, 2, 0, 2, 3, 0, 1, 3});
  }
}

TEST_CASE("router refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor logits = Tensor::zeros({3, 4}, DType::f32), w = Tensor::zeros({3, 2}, DType::f32);
  const Tensor ids = Tensor::zeros({3, 2}, DType::i32);
  const auto kind = RouterWeights::softmax;
  REQUIRE_THROWS_WITH(
      router_forward(Tensor::zeros({3, 5}, DType::f32), ids, logits, {}, kind),
      Contains("weights is f32 [3, 5] and logits is f32 [3, 4]; they must be [N, k] and [N, E]"));
  REQUIRE_THROWS_WITH(router_forward(Tensor::zeros({3, 0}, DType::f32), ids, logits, {}, kind),
                      Contains("1 <= k"));
  REQUIRE_THROWS_WITH(router_forward(w, Tensor::zeros({3, 2}, DType::i64), logits, {}, kind),
                      Contains("experts"));
  REQUIRE_THROWS_WITH(router_forward(w, ids, Tensor::zeros({3, 1025}, DType::f32), {}, kind),
                      Contains("at most 1024 experts"));
  REQUIRE_THROWS_WITH(router_forward(w, ids, logits, Tensor::zeros({5}, DType::f32), kind),
                      Contains("bias"));
  REQUIRE_THROWS_WITH(router_forward(w, ids, logits, Tensor::zeros({4}, DType::bf16), kind),
                      Contains("bias"));
  REQUIRE_THROWS_WITH(router_backward(logits, w, logits, ids, kind), Contains("overlaps"));
}

}  // namespace tessera
