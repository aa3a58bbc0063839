#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "kernels/matmul/options.h"
#include "tests/kernels/attention_problem.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::elements;
using test::relative_error;
using Sizes = test::AttentionSizes;
using Problem = test::AttentionProblem;
using Reference = test::AttentionReference;

// One key, odd numbers, whole tiles, one more than a tile, several tiles, decoding, grouped heads.
const std::vector<Sizes> kSizes = {
    {1, 1, 1, 1, 1, 1},      {2, 5, 5, 2, 2, 5},    {1, 64, 64, 2, 1, 32},  {2, 65, 65, 3, 3, 24},
    {1, 130, 130, 4, 2, 80}, {1, 1, 77, 4, 2, 64},  {2, 37, 100, 2, 1, 16}, {1, 17, 17, 1, 1, 128},
    {1, 70, 70, 2, 1, 250},  {1, 66, 200, 3, 1, 7},
};

// One query of more keys than a split has. Key heads that 1, 2, 3, 8 and 9 query heads share; splits of one
// key and whole ones; heads of less than 128 bytes, and of more.
const std::vector<Sizes> kDecoding = {
    {2, 1, 129, 1, 1, 64}, {1, 1, 256, 4, 2, 72},  {2, 1, 300, 6, 2, 128},
    {1, 1, 500, 8, 1, 24}, {1, 1, 140, 9, 1, 256},
};

/// A batch element's part of a call.
Heads element(Heads x, std::int64_t b) {
  x.offset += b * x.batch_stride;
  x.batch = 1;
  return x;
}

}  // namespace

TEST_CASE("attention and its gradients equal the plain formula in float64") {
  const test::Rank rank;
  for (const test::AttentionBounds& bounds : test::kAttentionBounds) {
    for (const Sizes& sizes : kSizes)
      test::check_errors(Problem(sizes, bounds.dtype), bounds, 1e-6);
  }
}

TEST_CASE("attention of one query over many keys equals the plain formula in float64") {
  const test::Rank rank;
  for (const test::AttentionBounds& bounds : test::kAttentionBounds) {
    for (const Sizes& sizes : kDecoding) {
      test::check_errors(Problem(sizes, bounds.dtype), bounds, 1e-6);
    }
  }
}

// The largest score of a split may be far from those of the others.
TEST_CASE("attention of one query stays exact when scores differ by hundreds") {
  const test::Rank rank;
  for (const float scale : {0.25f, -0.25f}) {
    Problem problem({1, 1, 400, 2, 2, 16}, DType::f32, 10.0);
    problem.scale = scale;
    const Reference reference(problem);
    problem.forward();
    CHECK(relative_error(elements(problem.o), reference.o) <= 1e-5);
  }
}

TEST_CASE("attention of one query has the same bits in any batch, and over any cache") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Problem batch({3, 1, 300, 4, 2, 64}, dtype);
    batch.forward();
    for (std::int64_t b = 0; b < 3; ++b) {
      const Problem alone({1, 1, 300, 4, 2, 64}, dtype);
      // The same keys in a cache of 512 positions, of which the others are NaN.
      const Tensor cache = test::poisoned({1, 512, 512}, dtype);
      cache.reshape({512, 512})
          .slice(0, 300)
          .copy_from(batch.k.tensor.reshape({900, 512}).slice(300 * b, 300 * (b + 1)));
      attention_forward(alone.o, alone.logsumexp, element(batch.q, b),
                        heads_of(cache, 256, 2, 64, 300), heads_of(cache, 384, 2, 64, 300),
                        batch.scale);
      CAPTURE(name_of(dtype), b);
      CHECK((elements(alone.o) == elements(element(batch.o, b))));
      CHECK(test::same_bits(alone.logsumexp, batch.logsumexp.slice(b, b + 1)));
    }
  }
}

TEST_CASE("attention stays exact when scores differ by hundreds") {
  const test::Rank rank;
  const Problem problem({1, 100, 100, 2, 2, 16}, DType::f32, 10.0);
  const Reference reference(problem);
  problem.run();
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
  after.q.tensor.reshape({150, kWidth})
      .slice(kChanged, kChanged + 1)
      .copy_from(Tensor::from(std::vector<float>(kWidth, 1e4f), {1, kWidth}));
  before.forward();
  after.forward();
  const auto rows = [](const Problem& x, std::int64_t begin, std::int64_t end) {
    return x.o.tensor.reshape({150, 32}).slice(begin, end);
  };
  REQUIRE(test::same_bits(rows(before, 0, kChanged), rows(after, 0, kChanged)));
  REQUIRE_FALSE(test::same_bits(rows(before, kChanged, 150), rows(after, kChanged, 150)));
}

TEST_CASE("attention gives the same bits under every schedule") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    // Two tiles of queries and of keys, the second of one row; grouped heads. Three splits.
    for (const Sizes& sizes : {Sizes{1, 33, 65, 2, 1, 64}, Sizes{1, 1, 300, 2, 1, 64}}) {
      test::require_equal_under_every_schedule([&] {
        const Problem problem(sizes, dtype);
        problem.run();
        return test::results_of(problem);
      });
    }
  }
}

TEST_CASE("attention writes nothing outside its heads and tokens") {
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
  // The same keys and values at the front of a cache of 32 positions; the rest is poisoned.
  const Tensor cache = test::poisoned({2, 32, 64}, DType::f32);
  for (std::int64_t b = 0; b < 2; ++b) {
    cache.reshape({64, 64})
        .slice(b * 32, b * 32 + 20)
        .copy_from(problem.k.tensor.reshape({40, 64}).slice(b * 20, b * 20 + 20));
  }
  problem.forward();
  const Heads o = problem.query_heads(test::poisoned(q.shape(), DType::f32));
  attention_forward(o, problem.logsumexp, problem.q, heads_of(cache, 32, 2, 8, 20),
                    heads_of(cache, 48, 2, 8, 20), problem.scale);
  REQUIRE(elements(o) == elements(problem.o));
}

TEST_CASE("a query has the same bits whatever queries are computed with it", "[cpu]") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Problem whole({2, 150, 150, 4, 2, 20}, dtype);
    whole.forward();
    const auto expected = test::elements(whole.o);
    // Few and many queries, inside tiles of keys and across their borders.
    for (const auto& [first, last] : {std::pair{0, 1}, std::pair{5, 6}, std::pair{63, 64},
                                      std::pair{64, 65}, std::pair{7, 100}, std::pair{149, 150}}) {
      Problem part({2, last - first, 150, 4, 2, 20}, dtype);
      part.k = whole.k;
      part.v = whole.v;
      part.k.tokens = part.v.tokens = last;
      part.q = whole.q;
      part.q.offset += first * part.q.token_stride;
      part.q.tokens = last - first;
      part.forward();
      const auto values = test::elements(part.o);
      for (std::int64_t b = 0; b < 2; ++b) {
        const auto from = expected.begin() + (b * 150 + first) * 80;
        const auto to = values.begin() + b * (last - first) * 80;
        CAPTURE(name_of(dtype), first, last, b);
        CHECK(std::equal(from, from + (last - first) * 80, to));
      }
    }
  }
}

TEST_CASE("attention has the same bits on every instruction set", "[cpu]") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto on = [&](cpu::Isa isa) {
      matmul_options().isa = isa;
      const Problem problem({1, 70, 90, 4, 2, 40}, dtype);
      problem.run();
      return test::results_of(problem);
    };
    const auto expected = on(cpu::Isa::portable);
    for (const cpu::Isa isa : cpu::available_isas()) {
      CAPTURE(name_of(dtype), enum_name(isa));
      CHECK((on(isa) == expected));  // not printed: there are many
    }
  }
}

TEST_CASE("attention of no tokens or no batch elements does nothing") {
  const test::Rank rank;
  for (const Sizes& sizes : {Sizes{0, 4, 4, 2, 2, 8}, Sizes{2, 0, 0, 2, 2, 8}}) {
    Problem problem(sizes, DType::f32);
    problem.run();
    problem.first_key = Tensor::zeros({sizes.batch, sizes.queries}, DType::i32);
    problem.run();
  }
}

TEST_CASE("attention of no queries has zero gradients for keys and values") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Tensor& first_key : {Tensor(), Tensor::zeros({1, 0}, DType::i32)}) {
      Problem problem({1, 0, 5, 2, 1, 64}, dtype);
      problem.first_key = first_key;
      problem.run();
      REQUIRE(elements(problem.dk) == std::vector<double>(5 * 64, 0.0));
      REQUIRE(elements(problem.dv) == std::vector<double>(5 * 64, 0.0));
    }
  }
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
  REQUIRE(workspace(64, true) > 0);
  REQUIRE(workspace(256, false) <= 2 * workspace(64, false));
  REQUIRE(workspace(256, true) <= 4 * workspace(64, true));
  // All scores of one head would be 256 KiB.
  REQUIRE(workspace(256, true) < 256 << 10);
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
  REQUIRE_THROWS_WITH(heads_of(x, 0, 2, 4, 7),
                      Contains("heads_of: 7 tokens of f32 [2, 6, 24]; expected at most"));
  REQUIRE_THROWS_WITH(heads_of(x.reshape({12, 24}), 0, 2, 4),
                      Contains("[batch, tokens, channels]"));
  REQUIRE_THROWS_WITH(
      attention_forward(out, logsumexp, q, heads_of(x, 8, 2, 4, 5), heads_of(x, 16, 2, 4, 5), 1.0f),
      Contains("6 queries but only 5 keys"));
  const auto three = heads_of(x, 0, 3, 4);
  REQUIRE_THROWS_WITH(attention_forward(out, logsumexp, q, three, three, 1.0f),
                      Contains("2 query heads and 3 key heads"));
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
  const Heads other = heads_of(Tensor::empty({2, 6, 8}, DType::bf16), 0, 2, 4);
  REQUIRE_THROWS_WITH(attention_forward(other, logsumexp, q, k, v, 1.0f), Contains("dtypes"));
  REQUIRE_THROWS_WITH(
      attention_backward(q, k, heads_of(x, 0, 1, 4), out, q, k, v, out, logsumexp, 1.0f),
      Contains("dv is [2, 6, 1, 4]"));
  REQUIRE_THROWS_WITH(attention_forward(Heads{}, logsumexp, q, k, v, 1.0f),
                      Contains("o is an undefined tensor"));
}

}  // namespace tessera
