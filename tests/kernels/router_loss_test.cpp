#include "kernels/router_loss/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::to_doubles;

struct Sizes {
  std::int64_t tokens, experts;
};
const std::vector<Sizes> kSizes = {{1, 1}, {5, 4}, {33, 31}, {70, 128}, {3, 1025}, {0, 8}};

struct Reference {
  std::vector<double> loss, dlogits;
};

/// The gradient as the sum of two: through each p_e by the Jacobian of the softmax, and through
/// logsumexp.
Reference reference(const Tensor& logits, const Tensor& factors, const Tensor& dloss, double z) {
  const auto l = to_doubles(logits), f = to_doubles(factors), g = to_doubles(dloss);
  const auto E = static_cast<std::size_t>(logits.size(1));
  Reference result{{}, std::vector<double>(l.size(), 0.0)};
  for (std::size_t n = 0; n < g.size(); ++n) {
    const double* const row = l.data() + n * E;
    const double maximum = *std::max_element(row, row + E);
    double sum = 0.0, loss = 0.0;
    for (std::size_t e = 0; e < E; ++e) sum += std::exp(row[e] - maximum);
    const double logsumexp = maximum + std::log(sum);
    std::vector<double> p(row, row + E);
    for (double& value : p) value = std::exp(value - logsumexp);
    for (std::size_t e = 0; e < E; ++e) {
      loss += f[e] * p[e];
      for (std::size_t j = 0; j < E; ++j) {
        result.dlogits[n * E + j] += g[n] * f[e] * p[e] * ((e == j) - p[j]);
      }
      result.dlogits[n * E + e] += g[n] * z * 2.0 * logsumexp * p[e];
    }
    result.loss.push_back(loss + z * logsumexp * logsumexp);
  }
  return result;
}

}  // namespace

TEST_CASE("router_loss and its gradient follow their formulas, under every schedule") {
  for (const DType dtype : test::kFloating) {
    for (const Sizes& n : kSizes) {
      for (const double z : {0.0, 0.3}) {
        CAPTURE(name_of(dtype), n.tokens, n.experts, z);
        test::for_every_schedule([&] {
          const DType statistics = statistics_dtype(dtype);
          const Tensor logits = normal_tensor({n.tokens, n.experts}, dtype, "logits", 3.0);
          const Tensor factors = normal_tensor({n.experts}, statistics, "factors");
          const Tensor dloss = normal_tensor({n.tokens}, statistics, "dloss");
          const Reference expected = reference(logits, factors, dloss, z);
          const double bound = dtype == DType::f64 ? 1e-12 : 1e-5;
          const Tensor loss = test::poisoned({n.tokens}, statistics);
          router_loss_forward(loss, logits, factors, z);
          CHECK(test::worst_error(to_doubles(loss), expected.loss, 1.0) <= bound);
          const Tensor dlogits = test::poisoned(logits.shape(), dtype);
          router_loss_backward(dlogits, dloss, logits, factors, z);
          CHECK(test::worst_error(to_doubles(dlogits), expected.dlogits, 1.0) <=
                bound + test::unit_roundoff(dtype));
        });
      }
    }
  }
}

TEST_CASE("router_loss of large logits is finite") {
  const test::Rank rank;
  const Tensor logits = Tensor::from(std::vector<float>{300.0f, -300.0f, 290.0f}, {1, 3});
  const Tensor factors = Tensor::from(std::vector<float>{1.0f, 2.0f, 3.0f}, {3});
  const Tensor loss = test::poisoned({1}, DType::f32);
  router_loss_forward(loss, logits, factors, 1.0);
  const double p = 1.0 / (1.0 + std::exp(-10.0)), logsumexp = 300.0 - std::log(p);
  CHECK(loss.item<float>() == Approx(p + 3.0 * (1.0 - p) + logsumexp * logsumexp).epsilon(1e-6));
}

TEST_CASE("router_loss refuses arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  const Tensor logits = zeros({3, 4}), loss = zeros({3}), factors = zeros({4});
  REQUIRE_THROWS_WITH(router_loss_forward(zeros({4}), logits, factors, 0.0), Contains("loss"));
  REQUIRE_THROWS_WITH(router_loss_forward(loss, logits, zeros({3}), 0.0), Contains("factors"));
  REQUIRE_THROWS_WITH(router_loss_forward(Tensor::zeros({3}, DType::bf16), logits, factors, 0.0),
                      Contains("loss"));
  REQUIRE_THROWS_WITH(router_loss_backward(logits, loss, logits, factors, 0.0),
                      Contains("dlogits overlaps logits"));
}

}  // namespace tessera
