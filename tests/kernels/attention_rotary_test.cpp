// Attention's gradients of rotated queries and keys, rotated back by its own kernels.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <optional>
#include <vector>

#include "kernels/rope/op.h"
#include "tests/kernels/attention_problem.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::elements;
using test::relative_error;
using Sizes = test::AttentionSizes;
using Problem = test::AttentionProblem;
using Reference = test::AttentionReference;

constexpr double kTheta = 100.0;

Rotary rotary_for(const Problem& problem, RopePairs pairs, const RopePositions& positions) {
  const RopeFrequencies frequencies = rope_frequencies(problem.sizes.head_size, kTheta);
  return {rope_table(200, frequencies, pairs, statistics_dtype(problem.dtype)), positions};
}

void backward(const Problem& x, const Rotary& rotary) {
  attention_backward(x.dq, x.dk, x.dv, x.d_o, x.q, x.k, x.v, x.o, x.logsumexp, x.scale, x.first_key,
                     &rotary);
}

/// Gradients in the order batch, token, head, channel, rotated back: each pair, as a complex number,
/// is multiplied by e^(-i p theta^(-2c / D)) (Su et al., equation 12).
std::vector<double> rotated_back(std::vector<double> x, const Sizes& n, std::int64_t heads,
                                 const Rotary& rotary, DType storage) {
  const std::int64_t half = n.head_size / 2, tokens = n.queries;
  const bool split = rotary.table.pairs == RopePairs::half_split;
  const Tensor& each = rotary.positions.each;
  const auto positions = each.defined() ? each.to_vector<std::int32_t>() : std::vector<int>();
  for (std::int64_t i = 0; i < n.batch * tokens * heads * half; ++i) {
    const std::int64_t c = i % half, row = i / half, token = row / heads;
    const auto position = positions.empty() ? token % tokens : positions[token];
    double& a = x[row * 2 * half + (split ? c : 2 * c)];
    double& b = x[row * 2 * half + (split ? c + half : 2 * c + 1)];
    const double angle = static_cast<double>(rotary.positions.first + position) *
                         std::pow(kTheta, -static_cast<double>(c) / static_cast<double>(half));
    const std::complex<double> z = std::complex<double>(a, b) * std::polar(1.0, -angle);
    a = test::rounded_to(storage, z.real()), b = test::rounded_to(storage, z.imag());
  }
  return x;
}

/// The rule of attention's other tests: in 16 bits at most twice the error of the formulas written
/// out in that dtype, one after the other.
void check_gradients(const Problem& problem, const Rotary& rotary) {
  const Sizes& n = problem.sizes;
  CAPTURE(name_of(problem.dtype), n.queries, n.head_size, int(rotary.table.pairs));
  problem.forward();
  backward(problem, rotary);
  const bool wide = problem.dtype == DType::f32 || problem.dtype == DType::f64;
  const Reference exact(problem), plain(problem, problem.dtype);
  const auto check_one = [&](const Heads& computed, const std::vector<double>& exact_gradient,
                             const std::vector<double>& plain_gradient) {
    const auto expected = rotated_back(exact_gradient, n, computed.heads, rotary, DType::f64);
    const auto rounded = rotated_back(plain_gradient, n, computed.heads, rotary, problem.dtype);
    const double bound = wide ? problem.dtype == DType::f64 ? 1e-12 : 2e-6
                              : 2.0 * relative_error(rounded, expected) + 2e-5;
    CHECK(relative_error(elements(computed), expected) <= bound);
  };
  check_one(problem.dq, exact.dq, plain.dq);
  check_one(problem.dk, exact.dk, plain.dk);
  CHECK(relative_error(elements(problem.dv), exact.dv) <= (wide ? 2e-6 : 0x1p-7));
}

}  // namespace

// Heads that tensor cores take and others; two blocks of 128 rows; grouped heads.
TEST_CASE("attention rotates the gradients of queries and keys back by their positions") {
  const test::Rank rank;
  for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
    for (const DType dtype : test::kFloating) {
      const Problem few({2, 5, 5, 2, 1, 6}, dtype);
      check_gradients(few, rotary_for(few, pairs, {.first = 7}));
    }
    for (const std::int64_t head_size : {64, 72, 80, 96, 112, 128, 192, 256}) {
      const Problem problem({1, 70, 70, 2, 1, head_size}, DType::bf16);
      check_gradients(problem, rotary_for(problem, pairs, {.first = 7}));
    }
    const Problem blocks({2, 130, 130, 1, 1, 64}, DType::f16);
    check_gradients(blocks, rotary_for(blocks, pairs, {}));
  }
}

TEST_CASE("attention of packed documents rotates gradients back by positions in the documents") {
  const test::Rank rank;
  std::vector<std::int32_t> first(145, 0), positions(145);
  std::fill(first.begin() + 37, first.end(), 37);
  std::fill(first.begin() + 38, first.end(), 38);
  for (std::int32_t t = 0; t < 145; ++t) positions[t] = t - first[t];
  for (const std::int64_t head_size : {64, 128, 256}) {
    Problem problem({1, 145, 145, 2, 1, head_size}, DType::bf16);
    problem.first_key = Tensor::from(first, {1, 145});
    check_gradients(problem, rotary_for(problem, RopePairs::half_split,
                                        {.each = Tensor::from(positions, {1, 145})}));
  }
}

TEST_CASE("attention in f32 gives the bits of a rotation after it, packed or apart") {
  const test::Rank rank;
  const Problem fused({2, 33, 33, 4, 2, 16}, DType::f32), apart({2, 33, 33, 4, 2, 16}, DType::f32);
  const Rotary rotary = rotary_for(fused, RopePairs::half_split, {.first = 3});
  fused.forward();
  backward(fused, rotary);
  apart.forward();
  apart.backward();
  rope_backward(apart.dq, rotary.table, rotary.positions);
  rope_backward(apart.dk, rotary.table, rotary.positions);
  REQUIRE(test::same_bits(fused.dq.tensor, apart.dq.tensor));  // all three are packed in it
  Problem alone({2, 33, 33, 4, 2, 16}, DType::f32);
  alone.dq = alone.query_heads(test::poisoned({2, 33, 64}, DType::f32));
  alone.forward();
  backward(alone, rotary);
  REQUIRE(elements(alone.dq) == elements(apart.dq));
  REQUIRE(elements(alone.dk) == elements(apart.dk));
}

TEST_CASE("attention with a rotation gives the same bits under every schedule") {
  for (const std::int64_t head_size : {64, 128, 256}) {
    test::require_equal_under_every_schedule([&] {
      const Problem problem({1, 140, 140, 2, 1, head_size}, DType::bf16);
      problem.forward();
      backward(problem, rotary_for(problem, RopePairs::half_split, {}));
      return std::vector{elements(problem.dq), elements(problem.dk), elements(problem.dv)};
    });
  }
}

// On a GPU rope_forward reports the position when the host synchronizes. On the CPU it raises.
TEST_CASE("attention leaves the gradient of a token outside the table as it is") {
  const test::Rank rank;
  const Problem turned({1, 40, 40, 1, 1, 64}, DType::bf16),
      plain({1, 40, 40, 1, 1, 64}, DType::bf16);
  std::vector<std::int32_t> positions(40, 0);  // angles of zero
  positions[9] = 1 << 30;
  const Rotary rotary =
      rotary_for(turned, RopePairs::half_split, {.each = Tensor::from(positions, {1, 40})});
  turned.forward();
  if (test::device().is_cpu()) {
    REQUIRE_THROWS_WITH(backward(turned, rotary), Catch::Contains("token 9 has position"));
    return;
  }
  backward(turned, rotary);
  plain.forward();
  plain.backward();
  REQUIRE(test::same_bits(turned.dq.tensor, plain.dq.tensor));
}

TEST_CASE("attention rejects a rotation that does not fit") {
  using Catch::Contains;
  const test::Rank rank;
  const Problem decoding({1, 3, 5, 2, 1, 8}, DType::f32), problem({1, 5, 5, 2, 1, 8}, DType::f32);
  REQUIRE_THROWS_WITH(backward(decoding, rotary_for(decoding, RopePairs::half_split, {})),
                      Contains("attention_backward: 3 queries and 5 keys with a rotation"));
  REQUIRE_THROWS_WITH(
      backward(problem, rotary_for(problem, RopePairs::half_split, {.first = 196})),
      Contains(
          "attention_backward: 5 tokens from position 196 on are too many for a table of 200"));
}

}  // namespace tessera
