#include "kernels/attention/op.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::relative_error;

struct Sizes {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
};

// One key, odd numbers, whole tiles, one more than a tile, several tiles, decoding, grouped heads.
const std::vector<Sizes> kSizes = {
    {1, 1, 1, 1, 1, 1},      {2, 5, 5, 2, 2, 5},    {1, 64, 64, 2, 1, 32},  {2, 65, 65, 3, 3, 24},
    {1, 130, 130, 4, 2, 80}, {1, 1, 77, 4, 2, 64},  {2, 37, 100, 2, 1, 16}, {1, 17, 17, 1, 1, 128},
    {1, 70, 70, 2, 1, 250},  {1, 66, 200, 3, 1, 7},
};

Tensor filled_with_nan(const Shape& shape, DType dtype) {
  return test::normal_tensor(shape, dtype, "poison", std::numeric_limits<double>::quiet_NaN());
}

/// Inputs and poisoned outputs of one call. Queries, keys and values lie in one packed tensor, as a
/// model has them, unless there are fewer queries than keys.
struct Problem {
  Sizes sizes;
  DType dtype;
  float scale;
  Heads q, k, v, o, d_o, dq, dk, dv;
  Tensor logsumexp;

  Problem(const Sizes& n, DType type, double input_scale = 1.0)
      : sizes(n), dtype(type), scale(1.0f / std::sqrt(static_cast<float>(n.head_size))) {
    const std::int64_t q_width = n.heads * n.head_size, kv_width = n.kv_heads * n.head_size;
    const Shape packed_shape{n.batch, n.keys, q_width + 2 * kv_width};
    const Tensor packed = test::normal_tensor(packed_shape, type, "packed", input_scale);
    const Tensor d_packed = filled_with_nan(packed_shape, type);
    const Shape q_shape{n.batch, n.queries, q_width};
    const bool self = n.queries == n.keys;
    q = self ? query_heads(packed)
             : query_heads(test::normal_tensor(q_shape, type, "q", input_scale));
    dq = self ? query_heads(d_packed) : query_heads(filled_with_nan(q_shape, type));
    k = heads_of(packed, q_width, n.kv_heads, n.head_size);
    v = heads_of(packed, q_width + kv_width, n.kv_heads, n.head_size);
    dk = heads_of(d_packed, q_width, n.kv_heads, n.head_size);
    dv = heads_of(d_packed, q_width + kv_width, n.kv_heads, n.head_size);
    o = query_heads(filled_with_nan(q_shape, type));
    d_o = query_heads(test::normal_tensor(q_shape, type, "d_o"));
    logsumexp = filled_with_nan({n.batch, n.heads, n.queries},
                                type == DType::f64 ? DType::f64 : DType::f32);
  }

  Heads query_heads(const Tensor& tensor) const {
    return heads_of(tensor, 0, sizes.heads, sizes.head_size);
  }
  void forward() const { attention_forward(o, logsumexp, q, k, v, scale); }
  void backward() const { attention_backward(dq, dk, dv, d_o, q, k, v, o, logsumexp, scale); }
};

/// The elements that a Heads means, in the order batch, token, head, channel.
std::vector<double> elements(const Heads& x) {
  const std::vector<double> all = test::to_doubles(x.tensor);
  std::vector<double> values;
  for (std::int64_t b = 0; b < x.batch; ++b) {
    for (std::int64_t t = 0; t < x.tokens; ++t) {
      const std::int64_t first = x.offset + b * x.batch_stride + t * x.token_stride;
      values.insert(values.end(), all.begin() + first, all.begin() + first + x.heads * x.head_size);
    }
  }
  return values;
}

/// Attention by the book in double: every score of a head at once, the softmax's Jacobian as it is.
struct Reference {
  std::vector<double> o, logsumexp, dq, dk, dv;

  explicit Reference(const Problem& x)
      : n(x.sizes),
        scale(x.scale),
        q(elements(x.q)),
        k(elements(x.k)),
        v(elements(x.v)),
        d_o(elements(x.d_o)) {
    o.resize(q.size());
    dq.resize(q.size());
    dk.resize(k.size());
    dv.resize(v.size());
    logsumexp.resize(static_cast<std::size_t>(n.batch * n.heads * n.queries));
    for (std::int64_t b = 0; b < n.batch; ++b) {
      for (std::int64_t h = 0; h < n.heads; ++h) {
        for (std::int64_t i = 0; i < n.queries; ++i) query(b, h, i);
      }
    }
  }

 private:
  std::int64_t q_at(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return ((b * n.queries + i) * n.heads + h) * n.head_size;
  }
  std::int64_t k_at(std::int64_t b, std::int64_t j, std::int64_t h) const {
    return ((b * n.keys + j) * n.kv_heads + h / (n.heads / n.kv_heads)) * n.head_size;
  }
  double dot(const std::vector<double>& x, std::int64_t at_x, const std::vector<double>& y,
             std::int64_t at_y) const {
    double sum = 0.0;
    for (std::int64_t c = 0; c < n.head_size; ++c) sum += x[at_x + c] * y[at_y + c];
    return sum;
  }
  void add(std::vector<double>& to, std::int64_t at_to, double factor, const std::vector<double>& x,
           std::int64_t at_x) const {
    for (std::int64_t c = 0; c < n.head_size; ++c) to[at_to + c] += factor * x[at_x + c];
  }

  void query(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t visible = n.keys - n.queries + i + 1, at = q_at(b, i, h);
    std::vector<double> p, dp;
    double sum = 0.0, mean = 0.0;
    for (std::int64_t j = 0; j < visible; ++j) {
      p.push_back(std::exp(scale * dot(q, at, k, k_at(b, j, h))));
      sum += p.back();
    }
    logsumexp[(b * n.heads + h) * n.queries + i] = std::log(sum);
    for (std::int64_t j = 0; j < visible; ++j) {
      p[j] /= sum;
      dp.push_back(dot(d_o, at, v, k_at(b, j, h)));
      mean += p[j] * dp[j];
      add(o, at, p[j], v, k_at(b, j, h));
    }
    for (std::int64_t j = 0; j < visible; ++j) {
      const double ds = scale * p[j] * (dp[j] - mean);
      add(dv, k_at(b, j, h), p[j], d_o, at);
      add(dq, at, ds, k, k_at(b, j, h));
      add(dk, k_at(b, j, h), ds, q, at);
    }
  }

  Sizes n;
  double scale;
  std::vector<double> q, k, v, d_o;
};

struct Bounds {
  DType dtype;
  double output, gradient;
};

// Outputs are rounded once to their dtype. Gradients also depend on O as it was stored.
const std::vector<Bounds> kBounds = {{DType::f64, 1e-13, 1e-12},
                                     {DType::f32, 1e-6, 2e-6},
                                     {DType::bf16, 0x1p-8, 0x1p-7},
                                     {DType::f16, 0x1p-11, 0x1p-10}};

}  // namespace

TEST_CASE("attention and its gradients equal the plain formula in float64") {
  const test::Rank rank;
  for (const Bounds& bounds : kBounds) {
    for (const Sizes& sizes : kSizes) {
      CAPTURE(name_of(bounds.dtype), sizes.batch, sizes.queries, sizes.keys, sizes.heads,
              sizes.kv_heads, sizes.head_size);
      const Problem problem(sizes, bounds.dtype);
      const Reference reference(problem);
      problem.forward();
      problem.backward();
      CHECK(relative_error(elements(problem.o), reference.o) <= bounds.output);
      CHECK(relative_error(test::to_doubles(problem.logsumexp), reference.logsumexp) <=
            (bounds.dtype == DType::f64 ? 1e-14 : 1e-6));
      CHECK(relative_error(elements(problem.dv), reference.dv) <= bounds.output);
      CHECK(relative_error(elements(problem.dq), reference.dq) <= bounds.gradient);
      CHECK(relative_error(elements(problem.dk), reference.dk) <= bounds.gradient);
    }
  }
}

TEST_CASE("attention stays exact when scores differ by hundreds") {
  const test::Rank rank;
  const Problem problem({1, 100, 100, 2, 2, 16}, DType::f32, 10.0);
  const Reference reference(problem);
  problem.forward();
  problem.backward();
  CHECK(relative_error(elements(problem.o), reference.o) <= 1e-5);
  CHECK(relative_error(elements(problem.dv), reference.dv) <= 1e-5);
  CHECK(relative_error(elements(problem.dq), reference.dq) <= 1e-4);
  CHECK(relative_error(elements(problem.dk), reference.dk) <= 1e-4);
}

TEST_CASE("attention does not look ahead: a later token changes no bit of an earlier output") {
  const test::Rank rank;
  const Problem before({1, 150, 150, 2, 2, 16}, DType::f32);
  const Problem after({1, 150, 150, 2, 2, 16}, DType::f32);
  constexpr std::int64_t kChanged = 97, kWidth = 3 * 2 * 16;
  for (std::int64_t c = 0; c < kWidth; ++c) {
    after.q.tensor.data<float>()[kChanged * kWidth + c] = 1e4f;
  }
  before.forward();
  after.forward();
  const auto rows = [](const Problem& x, std::int64_t begin, std::int64_t end) {
    return x.o.tensor.reshape({150, 32}).slice(begin, end);
  };
  REQUIRE(test::same_bits(rows(before, 0, kChanged), rows(after, 0, kChanged)));
  REQUIRE_FALSE(test::same_bits(rows(before, kChanged, 150), rows(after, kChanged, 150)));
}

TEST_CASE("attention gives the same bits for any number of threads") {
  const auto compute = [](int threads) {
    const test::Rank rank(threads);
    const Problem problem({2, 100, 100, 4, 2, 24}, DType::f32);
    problem.forward();
    problem.backward();
    std::vector<std::vector<double>> results;
    for (const Heads& x : {problem.o, problem.dq, problem.dk, problem.dv}) {
      results.push_back(elements(x));
    }
    results.push_back(test::to_doubles(problem.logsumexp));
    return results;
  };
  const auto one = compute(1);
  REQUIRE(compute(2) == one);
  REQUIRE(compute(3) == one);
}

TEST_CASE("attention writes nothing beside its heads and tokens") {
  const test::Rank rank;
  const Tensor qkv = test::normal_tensor({2, 9, 24}, DType::f32, "qkv");
  const Tensor o = Tensor::zeros({2, 12, 20}, DType::f32);
  const Tensor logsumexp = Tensor::empty({2, 2, 9}, DType::f32);
  // Heads in channels 5 to 12 and tokens 0 to 8.
  attention_forward(heads_of(o, 5, 2, 4, 9), logsumexp, heads_of(qkv, 0, 2, 4),
                    heads_of(qkv, 8, 2, 4), heads_of(qkv, 16, 2, 4), 0.5f);
  const std::vector<float> values = o.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t channel = i % 20, token = i / 20 % 12;
    const bool inside = channel >= 5 && channel < 13 && token < 9;
    CAPTURE(token, channel);
    REQUIRE((values[i] != 0.0f) == inside);
  }
}

TEST_CASE("attention over a partly filled cache sees only the tokens that count") {
  const test::Rank rank;
  const Problem problem({2, 3, 20, 4, 2, 8}, DType::f32);
  const Tensor q = problem.q.tensor;
  // The same keys and values at the front of a cache of 32 positions, the rest poison.
  const Tensor cache = filled_with_nan({2, 32, 64}, DType::f32);
  for (std::int64_t b = 0; b < 2; ++b) {
    cache.reshape({64, 64})
        .slice(b * 32, b * 32 + 20)
        .copy_from(problem.k.tensor.reshape({40, 64}).slice(b * 20, b * 20 + 20));
  }
  problem.forward();
  const Heads o = problem.query_heads(filled_with_nan(q.shape(), DType::f32));
  attention_forward(o, problem.logsumexp, problem.q, heads_of(cache, 32, 2, 8, 20),
                    heads_of(cache, 48, 2, 8, 20), problem.scale);
  REQUIRE(elements(o) == elements(problem.o));
}

TEST_CASE("attention of no tokens or no batch elements does nothing") {
  const test::Rank rank;
  const Problem no_batch({0, 4, 4, 2, 2, 8}, DType::f32);
  no_batch.forward();
  no_batch.backward();
  const Problem no_tokens({2, 0, 0, 2, 2, 8}, DType::f32);
  no_tokens.forward();
  no_tokens.backward();
}

TEST_CASE("attention of no queries has zero gradients for keys and values") {
  const test::Rank rank;
  const Problem problem({1, 0, 5, 2, 1, 4}, DType::f32);
  problem.forward();
  problem.backward();
  REQUIRE(elements(problem.dk) == std::vector<double>(20, 0.0));
  REQUIRE(elements(problem.dv) == std::vector<double>(20, 0.0));
}

TEST_CASE("attention's workspace grows with T, not with T squared") {
  test::Rank rank;
  const auto workspace = [&](std::int64_t tokens, bool backward) {
    const Problem problem({1, tokens, tokens, 2, 2, 16}, DType::f32);
    problem.forward();
    rank.context.allocator().reset_peaks();
    backward ? problem.backward() : problem.forward();
    return rank.context.allocator().account()[Category::workspace].peak;
  };
  REQUIRE(workspace(64, false) > 0);
  REQUIRE(workspace(512, false) <= 2 * workspace(64, false));
  REQUIRE(workspace(512, true) <= 8 * workspace(64, true));
  // All scores of one head would be 1 MB.
  REQUIRE(workspace(512, true) < 1 << 20);
}

TEST_CASE("attention rejects arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor x = test::normal_tensor({2, 6, 24}, DType::f32, "x");
  const Tensor o = Tensor::empty({2, 6, 8}, DType::f32);
  const Tensor logsumexp = Tensor::empty({2, 2, 6}, DType::f32);
  const auto q = heads_of(x, 0, 2, 4), k = heads_of(x, 8, 2, 4), v = heads_of(x, 16, 2, 4);
  const auto out = heads_of(o, 0, 2, 4);
  REQUIRE_NOTHROW(attention_forward(out, logsumexp, q, k, v, 1.0f));

  REQUIRE_THROWS_WITH(heads_of(x, 20, 2, 4), Contains("do not fit f32 [2, 6, 24]"));
  REQUIRE_THROWS_WITH(heads_of(x, 0, 2, 4, 7), Contains("7 tokens are not in"));
  REQUIRE_THROWS_WITH(heads_of(x.reshape({12, 24}), 0, 2, 4),
                      Contains("[batch, tokens, channels]"));
  REQUIRE_THROWS_WITH(
      attention_forward(out, logsumexp, q, heads_of(x, 8, 2, 4, 5), heads_of(x, 16, 2, 4, 5), 1.0f),
      Contains("6 queries but only 5 keys"));
  const auto three = heads_of(x, 0, 3, 4);
  REQUIRE_THROWS_WITH(attention_forward(out, logsumexp, q, three, three, 1.0f),
                      Contains("2 query heads cannot share 3 key heads"));
  REQUIRE_THROWS_WITH(
      attention_forward(out, logsumexp, q, heads_of(x, 8, 2, 3), heads_of(x, 16, 2, 3), 1.0f),
      Contains("heads of 4"));
  REQUIRE_THROWS_WITH(attention_forward(out, logsumexp, q, k, heads_of(x, 16, 1, 4), 1.0f),
                      Contains("v is [2, 6, 1, 4] and k is [2, 6, 2, 4]"));
  REQUIRE_THROWS_WITH(attention_forward(heads_of(o, 0, 1, 4), logsumexp, q, k, v, 1.0f),
                      Contains("o is [2, 6, 1, 4]"));
  REQUIRE_THROWS_WITH(attention_forward(out, Tensor::empty({2, 6, 2}, DType::f32), q, k, v, 1.0f),
                      Contains("logsumexp") && Contains("[2, 2, 6]"));
  REQUIRE_THROWS_WITH(attention_forward(out, Tensor::empty({2, 2, 6}, DType::bf16), q, k, v, 1.0f),
                      Contains("logsumexp") && Contains("f32"));
  Heads beyond = v;
  beyond.offset += 1;
  REQUIRE_THROWS_WITH(attention_forward(out, logsumexp, q, k, beyond, 1.0f),
                      Contains("v reaches to element 289"));
  const Heads other = heads_of(Tensor::empty({2, 6, 8}, DType::f64), 0, 2, 4);
  REQUIRE_THROWS_WITH(attention_forward(other, logsumexp, q, k, v, 1.0f), Contains("dtypes"));
  REQUIRE_THROWS_WITH(
      attention_backward(q, k, heads_of(x, 0, 1, 4), out, q, k, v, out, logsumexp, 1.0f),
      Contains("dv is [2, 6, 1, 4]"));
  REQUIRE_THROWS_WITH(attention_forward(Heads{}, logsumexp, q, k, v, 1.0f),
                      Contains("o is no tensor"));
}

}  // namespace tessera
