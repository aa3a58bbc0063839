// Attention whose queries have a first key: packed documents, chunks, and both.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/attention/first_key.h"
#include "tests/kernels/attention_problem.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::elements;
using test::same_bits;
using Ints = std::vector<std::int32_t>;
using Sizes = test::AttentionSizes;
using Problem = test::AttentionProblem;

/// The starts of documents of these lengths in one row, one number per token.
Ints starts_of(const std::vector<std::int64_t>& lengths) {
  Ints starts;
  for (const std::int64_t length : lengths) {
    starts.insert(starts.end(), static_cast<std::size_t>(length),
                  static_cast<std::int32_t>(starts.size()));
  }
  return starts;
}

Tensor rows_of(const std::vector<Ints>& rows) {
  Ints all;
  for (const Ints& row : rows) all.insert(all.end(), row.begin(), row.end());
  const auto count = static_cast<std::int64_t>(rows.size());
  return Tensor::from(all, {count, static_cast<std::int64_t>(all.size()) / count});
}

/// One batch element's tokens [first, first + count).
Heads part(Heads x, std::int64_t batch, std::int64_t first, std::int64_t count) {
  x.offset += batch * x.batch_stride + first * x.token_stride;
  x.batch = 1;
  x.tokens = count;
  return x;
}

/// A document's queries and keys in a batch element.
struct Document {
  std::int64_t batch, first_query, queries, first_key, keys;
};

/// Every document by a call of its own, into the same places.
void run_alone(const Problem& x, const std::vector<Document>& documents) {
  const std::int64_t heads = x.sizes.heads, queries = x.sizes.queries;
  const DType dtype = x.logsumexp.dtype();
  const Tensor all = x.logsumexp.reshape({x.sizes.batch * heads, queries});
  std::vector<double> statistics = test::to_doubles(all);
  for (const Document& d : documents) {
    const auto of_queries = [&](const Heads& h) {
      return part(h, d.batch, d.first_query, d.queries);
    };
    const auto of_keys = [&](const Heads& h) { return part(h, d.batch, d.first_key, d.keys); };
    const Tensor logsumexp = test::poisoned({1, heads, d.queries}, dtype);
    attention_forward(of_queries(x.o), logsumexp, of_queries(x.q), of_keys(x.k), of_keys(x.v),
                      x.scale);
    attention_backward(of_queries(x.dq), of_keys(x.dk), of_keys(x.dv), of_queries(x.d_o),
                       of_queries(x.q), of_keys(x.k), of_keys(x.v), of_queries(x.o), logsumexp,
                       x.scale);
    const std::vector<double> own = test::to_doubles(logsumexp);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::copy_n(own.begin() + h * d.queries, d.queries,
                  statistics.begin() + (d.batch * heads + h) * queries + d.first_query);
    }
  }
  all.copy_from(test::tensor_of(statistics, all.shape(), dtype));
}

void require_same_bits(const Problem& x, const Problem& y) {
  REQUIRE(same_bits(x.o.tensor, y.o.tensor));
  REQUIRE(same_bits(x.logsumexp, y.logsumexp));
  REQUIRE(same_bits(x.dq.tensor, y.dq.tensor));
  REQUIRE(same_bits(x.dk.tensor, y.dk.tensor));
  REQUIRE(same_bits(x.dv.tensor, y.dv.tensor));
}

/// Outputs of `rows` of a batch element, as doubles.
std::vector<double> outputs_of(const Heads& x, std::int64_t batch, std::int64_t first,
                               std::int64_t count) {
  return elements(part(x, batch, first, count));
}

}  // namespace

TEST_CASE("first_keys: documents, chunks from a document's start, and both") {
  const test::Rank rank;
  const Tensor starts = rows_of({{0, 0, 0, 0, 0, 0, 6, 6, 6, 6}, {0, 1, 1, 1, 1, 1, 1, 1, 8, 9}});
  const auto values = [&](std::int64_t chunk) {
    return first_keys(starts, chunk).to_vector<std::int32_t>();
  };
  CHECK(values(0) == starts.to_vector<std::int32_t>());
  CHECK(values(4) == Ints{0, 0, 0, 0, 4, 4, 6, 6, 6, 6, 0, 1, 1, 1, 1, 5, 5, 5, 8, 9});
  CHECK(values(1) == Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(values(100) == values(0));
  const auto in_window = [&](std::int64_t window, std::int64_t chunk = 0) {
    return first_keys(starts, chunk, 0, window).to_vector<std::int32_t>();
  };
  CHECK(in_window(3) == Ints{0, 0, 0, 1, 2, 3, 6, 6, 6, 7, 0, 1, 1, 1, 2, 3, 4, 5, 8, 9});
  CHECK(in_window(1) == values(1));
  CHECK(in_window(100) == values(0));
  CHECK(in_window(3, 4) == Ints{0, 0, 0, 1, 4, 4, 6, 6, 6, 7, 0, 1, 1, 1, 2, 5, 5, 5, 8, 9});
  CHECK(first_keys(rows_of({{3, 3}}), 0, 7, 4).to_vector<std::int32_t>() == Ints{4, 5});
  // Two tokens after a cache of 7: a document from 3 on, with chunks 3..6 and 7..10.
  CHECK(first_keys(rows_of({{3, 3}}), 4, 7).to_vector<std::int32_t>() == Ints{7, 7});
  CHECK(first_keys(rows_of({{3, 3}}), 5, 7).to_vector<std::int32_t>() == Ints{3, 8});
}

TEST_CASE("first_keys rejects starts that no document has") {
  const test::Rank rank;
  REQUIRE_THROWS_WITH(first_keys(rows_of({{0, 0}, {0, 2}}), 0),
                      Contains("the token at position 1 of row 1 has its document's start at 2; "
                               "expected 0 to 1"));
  REQUIRE_THROWS_WITH(first_keys(rows_of({{-1, 0}}), 4), Contains("start at -1"));
  REQUIRE_THROWS_WITH(first_keys(rows_of({{0, 0}}), -4), Contains("chunk is -4"));
  REQUIRE_THROWS_WITH(first_keys(rows_of({{0, 0}}), 0, 0, -1), Contains("window is -1"));
  REQUIRE_THROWS_WITH(first_keys(Tensor::from(Ints{0}, {1}), 0), Contains("starts"));
  REQUIRE_THROWS_WITH(first_keys(Tensor::zeros({1, 2}, DType::f32), 0), Contains("i32"));
}

// Documents; chunks; documents cut in chunks; a first key of its own for many queries; keys that no
// query sees; one query.
TEST_CASE("attention with first keys equals the plain formula in float64") {
  const test::Rank rank;
  struct Case {
    Sizes sizes;
    Tensor first_key;
  };
  const Tensor documents = rows_of({starts_of({1, 40, 29}), starts_of({66, 4})});
  Ints window;
  for (std::int32_t t = 0; t < 45; ++t) window.push_back(std::max(0, t - 3));
  const std::vector<Case> cases = {
      {{2, 70, 70, 4, 2, 20}, documents},
      {{2, 70, 70, 2, 2, 64}, first_keys(documents, 16)},
      {{1, 130, 130, 2, 1, 8}, first_keys(rows_of({Ints(130, 0)}), 48)},
      {{1, 45, 45, 1, 1, 16}, rows_of({window})},
      {{2, 4, 100, 2, 1, 16}, rows_of({{30, 30, 98, 98}, {96, 97, 97, 99}})},
      {{1, 1, 77, 2, 1, 32}, rows_of({{76}})},
      {{3, 1, 300, 2, 1, 32}, rows_of({{0}, {130}, {299}})},
  };
  for (const test::AttentionBounds& bounds : test::kAttentionBounds) {
    for (const Case& c : cases) {
      Problem problem(c.sizes, bounds.dtype);
      problem.first_key = c.first_key;
      test::check_errors(problem, bounds, 2e-6);
    }
  }
}

// Starts that are odd, even, and beyond a block of 128 rows; a document of one token; two batch
// elements with different documents.
TEST_CASE("packed documents give the bits of each document alone") {
  const test::Rank rank;
  const std::vector<std::vector<std::int64_t>> rows = {{37, 1, 70, 33, 9}, {132, 18}};
  std::vector<Document> documents;
  for (std::size_t b = 0; b < rows.size(); ++b) {
    std::int64_t first = 0;
    for (const std::int64_t length : rows[b]) {
      documents.push_back({static_cast<std::int64_t>(b), first, length, first, length});
      first += length;
    }
  }
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t head_size : {20, 64, 80, 96, 128, 256}) {
      if (dtype == DType::f16 && head_size != 64) continue;  // the same kernels as bf16
      CAPTURE(name_of(dtype), head_size);
      const Sizes sizes{2, 150, 150, 2, 1, head_size};
      Problem packed(sizes, dtype);
      const Problem alone(sizes, dtype);
      packed.first_key = rows_of({starts_of(rows[0]), starts_of(rows[1])});
      packed.run();
      run_alone(alone, documents);
      require_same_bits(packed, alone);
    }
  }
}

TEST_CASE("documents behind a cache give the bits of each document alone") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    // 60 queries of 100 keys: a document from key 13 on, one from key 58 on.
    const Sizes sizes{1, 60, 100, 2, 1, 64};
    Problem packed(sizes, dtype);
    const Problem alone(sizes, dtype);
    Ints first(60, 13);
    std::fill(first.begin() + 18, first.end(), 58);
    packed.first_key = rows_of({first});
    packed.run();
    run_alone(alone, {{0, 0, 18, 13, 45}, {0, 18, 42, 58, 42}});
    REQUIRE(same_bits(packed.o.tensor, alone.o.tensor));
    REQUIRE(same_bits(packed.dq.tensor, alone.dq.tensor));
    for (const auto& [x, y] : {std::pair{packed.dk, alone.dk}, std::pair{packed.dv, alone.dv}}) {
      REQUIRE(outputs_of(x, 0, 13, 87) == outputs_of(y, 0, 13, 87));
      REQUIRE(outputs_of(x, 0, 0, 13) == std::vector<double>(13 * 64, 0.0));
    }
  }
}

TEST_CASE("first keys of zero change no bit") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    for (const Sizes& sizes : {Sizes{2, 70, 70, 2, 1, 64}, Sizes{1, 5, 140, 2, 2, 24}}) {
      const Problem plain(sizes, dtype);
      Problem zeros(sizes, dtype);
      zeros.first_key = Tensor::zeros({sizes.batch, sizes.queries}, DType::i32);
      plain.run();
      zeros.run();
      require_same_bits(plain, zeros);
    }
  }
}

// Splits are counted from the first key, and NaN before it is never read.
TEST_CASE("one query with a first key has the bits of its keys alone") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    Problem window({1, 1, 300, 4, 2, 64}, dtype);
    const Problem alone({1, 1, 300, 4, 2, 64}, dtype);
    attention_forward(alone.o, alone.logsumexp, window.q, part(window.k, 0, 37, 263),
                      part(window.v, 0, 37, 263), window.scale);
    window.k.tensor.reshape({300, 512}).slice(0, 37).copy_from(test::poisoned({37, 512}, dtype));
    window.first_key = rows_of({{37}});
    window.forward();
    REQUIRE(same_bits(window.o.tensor, alone.o.tensor));
    REQUIRE(same_bits(window.logsumexp, alone.logsumexp));
  }
}

// A score that is computed and then masked would still spread NaN: 0 times NaN is NaN.
TEST_CASE("a document of NaN leaves the bits of its neighbours") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    const Sizes sizes{1, 120, 120, 2, 1, 64};
    Problem clean(sizes, dtype), spoiled(sizes, dtype);
    const std::vector<std::int64_t> lengths = {35, 50, 35};
    const Tensor first_key = rows_of({starts_of(lengths)});
    clean.first_key = spoiled.first_key = first_key;
    for (const Tensor& tensor : {spoiled.q.tensor, spoiled.d_o.tensor}) {
      const std::int64_t width = tensor.size(2);
      tensor.reshape({120, width}).slice(35, 85).copy_from(test::poisoned({50, width}, dtype));
    }
    clean.run();
    spoiled.run();
    for (const auto& [x, y] : {std::pair{clean.o, spoiled.o}, std::pair{clean.dq, spoiled.dq},
                               std::pair{clean.dk, spoiled.dk}, std::pair{clean.dv, spoiled.dv}}) {
      REQUIRE(outputs_of(x, 0, 0, 35) == outputs_of(y, 0, 0, 35));
      REQUIRE(outputs_of(x, 0, 85, 35) == outputs_of(y, 0, 85, 35));
      REQUIRE(std::isnan(outputs_of(y, 0, 60, 1).front()));
    }
  }
}

TEST_CASE("attention with first keys gives the same bits under every schedule") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    test::require_equal_under_every_schedule([&] {
      Problem problem({2, 70, 70, 4, 2, 64}, dtype);
      problem.first_key = rows_of({starts_of({33, 1, 36}), starts_of({65, 5})});
      problem.run();
      return test::results_of(problem);
    });
  }
}

TEST_CASE("attention rejects a first_key of another shape or dtype") {
  const test::Rank rank;
  Problem problem({2, 6, 6, 1, 1, 8}, DType::f32);
  problem.first_key = Tensor::zeros({2, 5}, DType::i32);
  REQUIRE_THROWS_WITH(problem.forward(), Contains("first_key is i32 [2, 5]") && Contains("[2, 6]"));
  REQUIRE_THROWS_WITH(problem.backward(), Contains("attention_backward: first_key"));
  problem.first_key = Tensor::zeros({2, 6}, DType::f32);
  REQUIRE_THROWS_WITH(problem.forward(), Contains("first_key") && Contains("i32"));
}

// The GPU finds bad numbers in the kernel, and raises them at the next synchronization.
TEST_CASE("attention rejects first keys that fall or hide all keys of a query") {
  const test::Rank rank;
  const auto error_of = [](const Ints& numbers, DType dtype, std::int64_t keys = 5) {
    const auto queries = static_cast<std::int64_t>(numbers.size()) / 2;
    Problem problem({2, queries, keys, 2, 1, 64}, dtype);
    problem.first_key = Tensor::from(numbers, {2, queries});
    return [problem] {
      problem.forward();
      current_stream().synchronize();
    };
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto place = [](const std::string& on_cpu, const std::string& on_gpu) {
      return Contains(test::kOnGpu ? on_gpu : on_cpu);
    };
    REQUIRE_NOTHROW(error_of({0, 1, 4, 2, 2, 2}, dtype)());
    REQUIRE_THROWS_WITH(error_of({0, 1, 4, 2, 1, 2}, dtype)(),
                        place("first_key of query 1 of batch element 1 is 1; expected 2",
                              "the number at position 4 of first_key"));
    REQUIRE_THROWS_WITH(error_of({0, 4, 4, 0, 0, 0}, dtype)(),
                        place("first_key of query 1 of batch element 0 is 4",
                              "the number at position 1 of first_key"));
    REQUIRE_THROWS_WITH(error_of({-1, 0, 0, 0, 0, 0}, dtype)(),
                        place("is -1; expected 0", "the number at position 0 of first_key"));
    REQUIRE_NOTHROW(error_of({0, 199}, dtype, 200)());
    for (const std::int32_t number : {-1, 200}) {
      REQUIRE_THROWS_WITH(error_of({0, number}, dtype, 200)(),
                          place("first_key of query 0 of batch element 1 is",
                                "the number at position 1 of first_key"));
    }
  }
}

}  // namespace tessera
