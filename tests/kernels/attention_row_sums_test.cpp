// Sums of the rows of attention's gradients: lines of 64 tokens, which a bias's gradient is made of.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/rope/op.h"
#include "tests/kernels/attention_problem.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Problem = test::AttentionProblem;

constexpr std::int64_t kTokensOfLine = 64;

/// The sums that a backward pass leaves in a place with an old tensor.
Tensor row_sums_of(const Problem& x, const Rotary* rotary = nullptr) {
  Tensor place = Tensor::full({1}, DType::f32, 3.0);
  x.forward();
  attention_backward(x.dq, x.dk, x.dv, x.d_o, x.q, x.k, x.v, x.o, x.logsumexp, x.scale, x.first_key,
                     rotary, &place);
  return place;
}

Rotary rotary_for(const Problem& x) {
  return {rope_table(200, rope_frequencies(x.sizes.head_size, 100.0), RopePairs::half_split,
                     DType::f32),
          {.first = 7}};
}

/// The sum of every 64 tokens' gradients in float64, and that of their magnitudes.
struct Sums {
  std::vector<double> exact, magnitudes;

  explicit Sums(const Problem& x) {
    const std::vector<double> gradients = test::to_doubles(x.dq.tensor);
    const std::int64_t channels = x.dq.tensor.size(2);
    for (std::int64_t batch = 0; batch < x.sizes.batch; ++batch) {
      for (std::int64_t first = 0; first < x.sizes.keys; first += kTokensOfLine) {
        const std::int64_t end = std::min(first + kTokensOfLine, x.sizes.keys);
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0.0, magnitude = 0.0;
          for (std::int64_t t = first; t < end; ++t) {
            const double value = gradients[(batch * x.sizes.keys + t) * channels + c];
            sum += value, magnitude += std::abs(value);
          }
          exact.push_back(sum), magnitudes.push_back(magnitude);
        }
      }
    }
  }
};

/// Each of 64 additions has an error of at most 2^-24 of the sum.
void check_sums(const Problem& x, const Rotary* rotary = nullptr) {
  CAPTURE(name_of(x.dtype), x.sizes.batch, x.sizes.keys, x.sizes.kv_heads, x.sizes.head_size,
          rotary != nullptr);
  const Tensor lines = row_sums_of(x, rotary);
  REQUIRE(lines.defined() == test::kOnGpu);
  if (!lines.defined()) return;
  const Sums expected(x);
  REQUIRE(lines.dtype() == DType::f32);
  const std::int64_t channels = x.dq.tensor.size(2);
  REQUIRE(lines.shape() ==
          Shape{static_cast<std::int64_t>(expected.exact.size()) / channels, channels});
  const std::vector<double> sums = test::to_doubles(lines);
  double worst = 0.0;  // of the bounds
  for (std::size_t i = 0; i < sums.size(); ++i) {
    REQUIRE(std::isfinite(sums[i]));
    const double bound = 64 * 0x1p-24 * expected.magnitudes[i];
    worst = std::max(worst, std::abs(sums[i] - expected.exact[i]) / bound);
  }
  CHECK(worst <= 1.0);
}

}  // namespace

// Lines that end within a warp's rows, with the last of two or at its beginning, and beyond a block's first
// line; grouped heads; all tiles that have sums, and a head that leaves a part of its tile empty.
TEST_CASE("attention sums the rows of its gradients in lines of 64 tokens") {
  const test::Rank rank;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t head_size : {64, 128}) {
      for (const std::int64_t tokens : {1, 23, 64, 65, 145}) {
        check_sums(Problem({2, tokens, tokens, 4, 2, head_size}, dtype));
      }
    }
  }
  for (const std::int64_t head_size : {72, 80, 96}) {
    check_sums(Problem({1, 150, 150, 2, 2, head_size}, DType::bf16));
  }
}

TEST_CASE("attention sums gradients after it has rotated them back") {
  const test::Rank rank;
  for (const std::int64_t head_size : {64, 80, 128}) {
    const Problem problem({1, 70, 70, 2, 1, head_size}, DType::bf16);
    const Rotary rotary = rotary_for(problem);
    check_sums(problem, &rotary);
  }
}

TEST_CASE("attention's gradients have the same bits with sums of their rows and without") {
  const test::Rank rank;
  for (const std::int64_t head_size : {64, 96, 128}) {
    const Problem with({2, 145, 145, 4, 2, head_size}, DType::bf16);
    const Problem without({2, 145, 145, 4, 2, head_size}, DType::bf16);
    row_sums_of(with);
    without.run();
    CHECK(test::same_bits(with.dq.tensor, without.dq.tensor));  // all three are packed in it
  }
}

TEST_CASE("attention's sums of rows have the same bits under every schedule") {
  if (!test::kOnGpu) return;
  for (const std::int64_t head_size : {64, 128}) {
    test::require_equal_under_every_schedule([&] {
      return test::to_doubles(row_sums_of(Problem({2, 145, 145, 4, 2, head_size}, DType::bf16)));
    });
  }
}

// Pieces of a block end anywhere, smaller blocks have no whole line, and a padded head is rotated later.
TEST_CASE("attention leaves no sums where a line's rows are not stored together") {
  const test::Rank rank;
  CHECK_FALSE(row_sums_of(Problem({1, 5, 5, 2, 1, 64}, DType::f32)).defined());
  CHECK_FALSE(row_sums_of(Problem({1, 5, 5, 2, 1, 256}, DType::bf16)).defined());
  CHECK_FALSE(row_sums_of(Problem({0, 5, 5, 2, 1, 64}, DType::bf16)).defined());
  Problem packed({1, 5, 5, 2, 1, 64}, DType::bf16);
  packed.first_key = Tensor::from(std::vector<std::int32_t>{0, 0, 2, 2, 2}, {1, 5});
  CHECK_FALSE(row_sums_of(packed).defined());
  const Problem padded({1, 5, 5, 2, 1, 72}, DType::bf16);
  const Rotary rotary = rotary_for(padded);
  CHECK_FALSE(row_sums_of(padded, &rotary).defined());
}

TEST_CASE("attention rejects a place for sums where its gradients are no tensor's rows") {
  const test::Rank rank;
  const auto message = Catch::Contains(
      "attention_backward: sums of rows need dq, dk and dv as the 256 channels of one tensor");
  Problem apart({2, 5, 5, 2, 1, 64}, DType::bf16), swapped = apart, wide = apart;
  apart.dq = apart.query_heads(test::poisoned({2, 5, 128}, DType::bf16));
  CHECK_THROWS_WITH(row_sums_of(apart), message);
  std::swap(swapped.dk, swapped.dv);
  CHECK_THROWS_WITH(row_sums_of(swapped), message);
  const Tensor wider = test::poisoned({2, 5, 320}, DType::bf16);
  wide.dq = wide.query_heads(wider);
  wide.dk = heads_of(wider, 128, 1, 64);
  wide.dv = heads_of(wider, 192, 1, 64);
  CHECK_THROWS_WITH(row_sums_of(wide), message);
}

}  // namespace tessera
