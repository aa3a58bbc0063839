// The readings of a watched step: exact maxima and sums that do not depend on the order of work.
#include "kernels/watch/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/kernels/attention_problem.h"
#include "tests/support/device.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::to_doubles;

Tensor zero() {
  return Tensor::zeros({1}, DType::f32);
}

/// Element (batch, token, head, channel).
double at(const std::vector<double>& values, const Heads& x, std::int64_t b, std::int64_t t,
          std::int64_t h, std::int64_t d) {
  return values[static_cast<std::size_t>(x.offset + b * x.batch_stride + t * x.token_stride +
                                         h * x.head_size + d)];
}

/// The largest logit of each head's visible pairs by its definition; 0 if all are negative.
std::vector<double> largest_logits(const test::AttentionProblem& p) {
  const auto q = to_doubles(p.q.tensor), k = to_doubles(p.k.tensor);
  const auto& n = p.sizes;
  std::vector<double> all(static_cast<std::size_t>(n.heads));
  for (std::int64_t b = 0; b < n.batch; ++b) {
    for (std::int64_t h = 0; h < n.heads; ++h) {
      double& largest = all[static_cast<std::size_t>(h)];
      for (std::int64_t i = 0; i < n.queries; ++i) {
        std::int64_t first = 0;
        if (p.first_key.defined()) {
          first =
              p.first_key.to_vector<std::int32_t>()[static_cast<std::size_t>(b * n.queries + i)];
        }
        for (std::int64_t j = first; j <= n.keys - n.queries + i; ++j) {
          double sum = 0.0;
          for (std::int64_t d = 0; d < n.head_size; ++d) {
            sum += at(q, p.q, b, i, h, d) * at(k, p.k, b, j, h / (n.heads / n.kv_heads), d);
          }
          largest = std::max(largest, static_cast<double>(p.scale) * sum);
        }
      }
    }
  }
  return all;
}

/// The largest logit of each head.
std::vector<float> logits_of(const test::AttentionProblem& p) {
  const Tensor largest = Tensor::zeros({p.q.heads}, DType::f32);
  raise_to_attention_logit(largest, p.q, p.k, p.scale, p.first_key);
  return largest.to_vector<float>();
}

/// The largest of all heads.
float logit_of(const test::AttentionProblem& p) {
  return std::ranges::max(logits_of(p));
}

}  // namespace

TEST_CASE("watch: the largest magnitude is exact in every dtype, under every schedule") {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t count : {1, 7, 1000, 200'000}) {
      CAPTURE(name_of(dtype), count);
      test::for_every_schedule([&] {
        const Tensor x = normal_tensor({count}, dtype, "x");
        double expected = 0.0;
        for (const double value : to_doubles(x)) expected = std::max(expected, std::abs(value));
        const Tensor largest = zero();
        raise_to_magnitude(largest, x);
        CHECK(largest.item<float>() == static_cast<float>(expected));
        raise_to_magnitude(largest, normal_tensor({count}, dtype, "x", 0.5));
        CHECK(largest.item<float>() == static_cast<float>(expected));
      });
    }
  }
}

TEST_CASE("watch: a NaN stays the largest, whatever its sign") {
  const test::Rank rank;
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> values(100, 1.0f);
    values[70] = std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
    values[71] = std::numeric_limits<float>::infinity();
    const Tensor largest = zero();
    raise_to_magnitude(largest, Tensor::from(values, {100}));
    raise_to_magnitude(largest, Tensor::full({5}, DType::f32, 1e30));
    CHECK(std::isnan(largest.item<float>()));
  }
}

TEST_CASE("watch: the largest attention logit of a head is that of the pairs that it sees") {
  const std::vector<test::AttentionSizes> sizes = {
      {1, 1, 1, 1, 1, 8}, {2, 70, 70, 4, 2, 24}, {1, 9, 80, 2, 1, 64}, {2, 130, 130, 2, 2, 16}};
  for (const DType dtype : test::kFloating) {
    for (const test::AttentionSizes& n : sizes) {
      CAPTURE(name_of(dtype), n.queries, n.keys);
      test::for_every_schedule([&] {
        const test::AttentionProblem p(n, dtype);
        const std::vector<double> expected = largest_logits(p);
        const std::vector<float> found = logits_of(p);
        for (std::size_t h = 0; h < expected.size(); ++h) {
          CHECK(found[h] == Approx(expected[h]).epsilon(1e-5));
        }
      });
    }
  }
}

TEST_CASE("watch: hidden pairs have no logit") {
  const test::Rank rank;
  test::AttentionProblem p({1, 100, 100, 1, 1, 8}, DType::f32);
  // The last 40 tokens are a document, and its first 30 do not see the last 10.
  std::vector<std::int32_t> first(100, 0);
  std::fill(first.begin() + 60, first.end(), 60);
  p.first_key = Tensor::from(first, {1, 100});
  CHECK(logit_of(p) == Approx(largest_logits(p).front()).epsilon(1e-5));
  // A query of 1e3 in every channel and its mirror image as a key: seen in one order only.
  const auto set = [&](const Heads& x, std::int64_t token, float value) {
    x.tensor.reshape({x.tensor.numel()})
        .slice(x.offset + token * x.token_stride, x.offset + token * x.token_stride + 8)
        .copy_from(Tensor::full({8}, DType::f32, value));
  };
  set(p.q, 10, 1e3f);
  set(p.k, 11, 1e3f);
  p.first_key = Tensor();
  CHECK(logit_of(p) < 1e4f);  // 8e6 / sqrt(8) if query 10 saw key 11
  set(p.k, 10, 1e3f);
  CHECK(logit_of(p) == Approx(8e6 / std::sqrt(8.0)));
}

TEST_CASE("watch: cutting a problem into heads and rows changes no bit of its largest logit") {
  const test::Rank rank;
  const test::AttentionProblem p({3, 90, 90, 4, 2, 24}, DType::f32);
  float of_parts = 0.0f;
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      const auto part = [&](Heads x, std::int64_t heads) {
        x.offset += b * x.batch_stride + h * heads * x.head_size;
        x.batch = 1;
        x.heads = heads;
        return x;
      };
      for (const std::int64_t first : {0, 32}) {
        Heads q = part(p.q, 2), k = part(p.k, 1);
        q.offset += first * q.token_stride;
        q.tokens = first == 0 ? 32 : 58;
        k.tokens = first + q.tokens;
        const Tensor largest = Tensor::zeros({2}, DType::f32);
        raise_to_attention_logit(largest, q, k, p.scale);
        of_parts = std::max(of_parts, std::ranges::max(largest.to_vector<float>()));
      }
    }
  }
  CHECK(of_parts == logit_of(p));
}

TEST_CASE("watch: the entropies of routers are those of the softmax, to a unit per row") {
  struct Sizes {
    std::int64_t tokens, experts;
  };
  for (const DType dtype : test::kFloating) {
    for (const Sizes n : {Sizes{1, 1}, {50, 4}, {33, 128}}) {
      CAPTURE(name_of(dtype), n.tokens, n.experts);
      test::for_every_schedule([&] {
        const Tensor logits = normal_tensor({n.tokens, n.experts}, dtype, "logits", 3.0);
        const auto values = to_doubles(logits);
        double expected = 0.0;
        for (std::int64_t row = 0; row < n.tokens; ++row) {
          const double* const l = values.data() + row * n.experts;
          double sum = 0.0;
          for (std::int64_t e = 0; e < n.experts; ++e) sum += std::exp(l[e]);
          for (std::int64_t e = 0; e < n.experts; ++e) {
            expected -= std::exp(l[e]) / sum * (l[e] - std::log(sum));
          }
        }
        const Tensor sum = Tensor::zeros({2}, DType::i64);
        add_router_entropy(sum, logits);
        const auto found = sum.to_vector<std::int64_t>();
        CHECK(found[1] == n.tokens);
        CHECK(static_cast<double>(found[0]) * kEntropyUnit ==
              Approx(expected).margin(1e-6 * static_cast<double>(n.tokens)));
      });
    }
  }
}

TEST_CASE("watch: equal logits have the entropy log E, and a row with a NaN does not count") {
  const test::Rank rank;
  std::vector<float> values(3 * 8, 2.5f);
  values[9] = std::numeric_limits<float>::quiet_NaN();
  values[17] = std::numeric_limits<float>::infinity();
  const Tensor sum = Tensor::zeros({2}, DType::i64);
  add_router_entropy(sum, Tensor::from(values, {3, 8}));
  const auto found = sum.to_vector<std::int64_t>();
  CHECK(found[1] == 1);
  CHECK(static_cast<double>(found[0]) * kEntropyUnit == Approx(std::log(8.0)).margin(1e-6));
}

TEST_CASE("watch: wrong arguments are named") {
  const test::Rank rank;
  const test::AttentionProblem p({1, 4, 4, 2, 1, 8}, DType::f32);
  CHECK_THROWS_WITH(raise_to_magnitude(Tensor::zeros({2}, DType::f32), p.q.tensor),
                    Contains("raise_to_magnitude: largest"));
  Heads q = p.q;
  q.tokens = 5;
  CHECK_THROWS_WITH(raise_to_attention_logit(Tensor::zeros({2}, DType::f32), q, p.k, 1.0f),
                    Contains("raise_to_attention_logit"));
  CHECK_THROWS_WITH(
      add_router_entropy(Tensor::zeros({1}, DType::i64), Tensor::zeros({2, 3}, DType::f32)),
      Contains("add_router_entropy: sum"));
}

}  // namespace tessera
