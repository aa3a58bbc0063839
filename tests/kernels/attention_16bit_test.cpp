// Attention in 16 bits with heads of 40 to 128 channels, which GPUs compute on tensor cores.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/kernels/attention_problem.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::elements;
using test::relative_error;
using Sizes = test::AttentionSizes;
using Problem = test::AttentionProblem;
using Reference = test::AttentionReference;

double largest_error(const std::vector<double>& x, const std::vector<double>& y) {
  return test::worst_error(x, y, 1.0);
}

/// The rule by which FlashAttention is tested: the error against exact arithmetic on the same
/// inputs is at most twice that of the formula written out in the same dtype, and a little for f32.
void check_errors(const Problem& problem) {
  const Sizes& n = problem.sizes;
  CAPTURE(name_of(problem.dtype), n.batch, n.queries, n.keys, n.heads, n.kv_heads, n.head_size);
  problem.run();
  const Reference exact(problem), plain(problem, problem.dtype);
  constexpr double kNoise = 2e-5;
  CHECK(relative_error(test::to_doubles(problem.logsumexp), exact.logsumexp) <= 2e-6);
  CHECK(largest_error(elements(problem.o), exact.o) <=
        2.0 * largest_error(plain.o, exact.o) + kNoise);
  struct Gradient {
    std::string name;
    const Heads& computed;
    const std::vector<double>&exact, &plain;
  };
  for (const auto& x : {Gradient{"dq", problem.dq, exact.dq, plain.dq},
                        {"dk", problem.dk, exact.dk, plain.dk},
                        {"dv", problem.dv, exact.dv, plain.dv}}) {
    INFO(x.name);
    CHECK(relative_error(elements(x.computed), x.exact) <=
          2.0 * relative_error(x.plain, x.exact) + kNoise);
  }
}

/// 33 queries of the last of 70 keys, grouped heads: tiles with tails and a diagonal off the
/// corner.
constexpr Sizes kShifted{1, 33, 70, 2, 1, 64};

/// More tiles than a ring of two has stages, of keys and of queries.
constexpr Sizes kManyTiles{1, 300, 400, 1, 1, 64};

TEST_CASE("16-bit attention of no queries has zero gradients under every schedule") {
  for (const std::int64_t head_size : {64, 128}) {
    test::for_every_schedule([&] {
      const Problem problem({1, 0, 70, 2, 1, head_size}, DType::bf16);
      problem.backward();
      const std::vector<double> zeros(static_cast<std::size_t>(70 * head_size), 0.0);
      REQUIRE(elements(problem.dk) == zeros);
      REQUIRE(elements(problem.dv) == zeros);
    });
  }
}

}  // namespace

// Queries and keys: one; a tail only; whole tiles; one more tile; two blocks of 128 rows, the second
// of 2; decoding; a diagonal off the corner. Heads: one, as many as key heads, grouped.
TEST_CASE("16-bit attention of heads of 64 errs at most twice as much as the plain formula") {
  const test::Rank rank;
  for (const Sizes& sizes :
       {Sizes{2, 1, 1, 1, 1, 64}, Sizes{1, 33, 33, 3, 1, 64}, Sizes{2, 64, 64, 1, 1, 64},
        Sizes{1, 100, 100, 2, 2, 64}, Sizes{1, 130, 130, 2, 1, 64}, Sizes{1, 1, 150, 4, 2, 64},
        kShifted, kManyTiles}) {
    for (const DType dtype : {DType::bf16, DType::f16}) check_errors(Problem(sizes, dtype));
  }
}

TEST_CASE("16-bit attention of heads of 128 errs at most twice as much as the plain formula") {
  const test::Rank rank;
  for (const Sizes& sizes : {Sizes{1, 1, 1, 2, 1, 128}, Sizes{1, 33, 33, 2, 1, 128},
                             Sizes{1, 64, 64, 1, 1, 128}, Sizes{1, 130, 130, 1, 1, 128},
                             Sizes{2, 3, 140, 2, 1, 128}, Sizes{1, 129, 200, 1, 1, 128}}) {
    for (const DType dtype : {DType::bf16, DType::f16}) check_errors(Problem(sizes, dtype));
  }
}

TEST_CASE(
    "16-bit attention of heads of 80, 96 and 256 errs at most twice as much as the plain formula") {
  const test::Rank rank;
  for (const std::int64_t head_size : {80, 96, 256}) {
    for (const Sizes& sizes :
         {Sizes{1, 33, 33, 2, 1, head_size}, Sizes{1, 130, 130, 1, 1, head_size},
          Sizes{2, 3, 140, 2, 1, head_size}}) {
      for (const DType dtype : {DType::bf16, DType::f16}) check_errors(Problem(sizes, dtype));
    }
  }
}

// In a tile of 64, 80, 96, 128 or 256 channels, of which the last are zeros.
TEST_CASE("16-bit attention of padded heads errs at most twice as much as the plain formula") {
  const test::Rank rank;
  for (const std::int64_t head_size : {40, 72, 88, 112, 136, 192}) {
    check_errors(Problem({1, 130, 130, 2, 1, head_size}, DType::bf16));
    check_errors(Problem({2, 3, 40, 2, 1, head_size}, DType::f16));
  }
}

// A document that ends in a block of 128 rows, one of one token, one of two blocks; a first key of
// its own for every query; a whole tile of 128 queries that begins at an odd one.
TEST_CASE("16-bit attention with first keys errs at most twice as much as the plain formula") {
  const test::Rank rank;
  for (const std::int64_t head_size : {64, 72, 80, 96, 128, 256}) {
    Problem documents({1, 145, 145, 2, 1, head_size}, DType::bf16);
    std::vector<std::int32_t> first(145, 0);
    std::fill(first.begin() + 37, first.end(), 37);
    std::fill(first.begin() + 38, first.end(), 38);
    documents.first_key = Tensor::from(first, {1, 145});
    check_errors(documents);
    Problem window({1, 10, 40, 1, 1, head_size}, DType::f16);
    window.first_key =
        Tensor::from(std::vector<std::int32_t>{5, 5, 6, 9, 9, 9, 36, 37, 37, 39}, {1, 10});
    check_errors(window);
    Problem odd({1, 170, 170, 1, 1, head_size}, DType::bf16);
    std::vector<std::int32_t> first_of_two(170, 0);
    std::fill(first_of_two.begin() + 37, first_of_two.end(), 37);
    odd.first_key = Tensor::from(first_of_two, {1, 170});
    check_errors(odd);
  }
}

TEST_CASE("16-bit attention errs no more when scores differ by hundreds") {
  const test::Rank rank;
  check_errors(Problem({1, 70, 70, 1, 1, 64}, DType::bf16, 8.0));
  check_errors(Problem({1, 40, 70, 1, 1, 128}, DType::f16, 6.0));
}

TEST_CASE("16-bit attention takes rows at any address and any scale") {
  const test::Rank rank;
  for (const std::int64_t first_channel : {0, 3, 8}) {
    const std::int64_t width = 64 + first_channel;
    const Tensor packed = test::normal_tensor({1, 20, width}, DType::bf16, "packed");
    const Tensor o = test::poisoned({1, 20, width}, DType::bf16);
    const Tensor logsumexp = test::poisoned({1, 1, 20}, DType::f32);
    const Heads x = heads_of(packed, first_channel, 1, 64);
    for (const float scale : {0.125f, 0.0f, -0.125f}) {
      attention_forward(heads_of(o, first_channel, 1, 64), logsumexp, x, x, x, scale);
      // The first query sees itself alone. With scale 0 an output is the mean of the visible rows.
      const std::vector<double> in = elements(x), out = elements(heads_of(o, first_channel, 1, 64));
      REQUIRE(std::equal(in.begin(), in.begin() + 64, out.begin()));
      if (scale != 0.0f) continue;
      for (std::int64_t c = 0; c < 64; ++c) {
        double mean = 0.0;
        for (std::int64_t t = 0; t < 20; ++t) mean += in[t * 64 + c] / 20.0;
        REQUIRE(out[19 * 64 + c] == Approx(mean).margin(0.01));
      }
    }
  }
}

TEST_CASE("16-bit attention of the last queries alone gives the bits of all queries") {
  const test::Rank rank;
  for (const std::int64_t head_size : {64, 128}) {
    const Problem whole({1, 70, 70, 1, 1, head_size}, DType::bf16);
    whole.forward();
    // The first of these rows is also the first of a tile, so that both see the same tiles.
    const Tensor q = test::poisoned({1, 6, head_size}, DType::bf16);
    const Tensor rows = whole.q.tensor.reshape({70, 3 * head_size}).slice(64, 70);
    std::vector<bfloat16> last;
    const auto values = rows.to_vector<bfloat16>();
    for (std::int64_t t = 0; t < 6; ++t) {
      const auto first = values.begin() + t * 3 * head_size;
      last.insert(last.end(), first, first + head_size);
    }
    q.copy_from(Tensor::from(last, {1, 6, head_size}));
    const Tensor o = test::poisoned({1, 6, head_size}, DType::bf16);
    const Tensor logsumexp = test::poisoned({1, 1, 6}, DType::f32);
    attention_forward(heads_of(o, 0, 1, head_size), logsumexp, heads_of(q, 0, 1, head_size),
                      whole.k, whole.v, whole.scale);
    const Tensor expected = whole.o.tensor.reshape({70, head_size}).slice(64, 70);
    REQUIRE(test::same_bits(o.reshape({6, head_size}), expected));
  }
}

TEST_CASE("16-bit attention gives the same bits under every schedule") {
  for (const Sizes& sizes : {kShifted, Sizes{1, 40, 70, 2, 1, 128}, kManyTiles}) {
    test::require_equal_under_every_schedule([&] {
      const Problem problem(sizes, DType::f16);
      problem.run();
      return test::results_of(problem);
    });
  }
}

}  // namespace tessera
