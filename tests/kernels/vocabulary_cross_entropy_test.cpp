#include "kernels/vocabulary_cross_entropy/op.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/linear_cross_entropy/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

constexpr double kScale = 0.3;
constexpr std::int64_t kParts = 8;

struct Bounds {
  DType dtype;
  double loss, gradient;
};
const std::vector<Bounds> kBounds = [] {
  std::vector<Bounds> bounds = {{DType::f32, 1e-6, 3e-6},
                                {DType::bf16, 1e-6, 0x1p-8},
                                {DType::f16, 1e-6, 0x1p-11},
                                {DType::f64, 1e-14, 1e-13}};
  bounds.resize(test::kFloating.size());
  return bounds;
}();

/// Classes drawn at random, the first and the last one among them; the second position is ignored.
Tensor some_targets(std::int64_t rows, std::int64_t classes) {
  auto values = test::index_tensor({rows}, classes, "targets").to_vector<std::int32_t>();
  values[0] = 0, values[1] = kIgnoreIndex;
  values.back() = static_cast<std::int32_t>(classes - 1);
  return Tensor::from(values, {rows});
}

/// Columns [first, first + count) of a matrix, in memory of their own.
Tensor columns_of(const Tensor& matrix, std::int64_t first, std::int64_t count) {
  const std::vector<double> values = to_doubles(matrix);
  std::vector<double> taken;
  for (std::int64_t n = 0; n < matrix.size(0); ++n) {
    const auto row = values.begin() + n * matrix.size(1) + first;
    taken.insert(taken.end(), row, row + count);
  }
  return test::tensor_of(taken, {matrix.size(0), count}, matrix.dtype());
}

/// The results of `ranks` ranks that have equal parts of the classes, kParts in all.
struct Results {
  Tensor statistics, combined, loss;
  std::vector<Tensor> dlogits;  // of each rank

  Results(const Tensor& logits, const Tensor& targets, std::int64_t ranks) {
    const std::int64_t rows = logits.size(0), classes = logits.size(1) / ranks;
    const DType dtype = statistics_dtype(logits.dtype());
    statistics = test::poisoned({kParts, rows, 3}, dtype);
    const Tensor of_ranks = test::poisoned({ranks, rows, 3}, dtype);
    std::vector<Tensor> divided;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      divided.push_back(columns_of(logits, rank * classes, classes));
      const std::int64_t parts = kParts / ranks;
      const Tensor own = statistics.slice(rank * parts, (rank + 1) * parts);
      vocabulary_statistics(own, divided.back(), targets, rank * classes, parts);
      combine_statistics(of_ranks.slice(rank, rank + 1).reshape({rows, 3}), own);
    }
    combined = test::poisoned({rows, 3}, dtype);
    combine_statistics(combined, of_ranks);
    loss = test::poisoned({1}, dtype);
    vocabulary_loss(loss, combined, targets, kScale);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      dlogits.push_back(test::poisoned(divided[0].shape(), logits.dtype()));
      vocabulary_gradient(dlogits.back(), divided[static_cast<std::size_t>(rank)], combined,
                          targets, rank * classes, kScale);
    }
  }
};

/// The formulas of op.h in double, over all classes at once.
struct Reference {
  std::vector<double> maximum, sum, dlogits;
  double loss = 0.0;

  Reference(const Tensor& logits, const Tensor& targets) : dlogits(to_doubles(logits)) {
    const auto target = targets.to_vector<std::int32_t>();
    const auto classes = static_cast<std::size_t>(logits.size(1));
    for (std::size_t n = 0; n < target.size(); ++n) {
      double* const row = dlogits.data() + n * classes;
      maximum.push_back(*std::max_element(row, row + classes));
      sum.push_back(0.0);
      for (std::size_t v = 0; v < classes; ++v) sum[n] += std::exp(row[v] - maximum[n]);
      const bool ignored = target[n] == kIgnoreIndex;
      if (!ignored) loss += kScale * (maximum[n] + std::log(sum[n]) - row[target[n]]);
      for (std::size_t v = 0; v < classes; ++v) {
        const double one = v == static_cast<std::size_t>(target[n]) ? 1.0 : 0.0;
        row[v] = ignored ? 0.0 : kScale * (std::exp(row[v] - maximum[n]) / sum[n] - one);
      }
    }
  }
};

std::vector<double> column(const Tensor& statistics, std::size_t which) {
  const std::vector<double> values = to_doubles(statistics);
  std::vector<double> taken;
  for (std::size_t i = which; i < values.size(); i += 3) taken.push_back(values[i]);
  return taken;
}

/// One thread's elements and fewer, a block's and more, several blocks of sums of the CPU.
constexpr std::int64_t kClasses[] = {8, 8 * 5, 8 * 37, 8 * 515, 8 * 2051};

}  // namespace

TEST_CASE("losses and gradients of divided classes agree with the formulas") {
  const test::Rank rank;
  for (const Bounds& bounds : kBounds) {
    for (const std::int64_t classes : kClasses) {
      CAPTURE(name_of(bounds.dtype), classes);
      const Tensor logits = test::normal_tensor({7, classes}, bounds.dtype, "logits", 3.0);
      const Tensor targets = some_targets(7, classes);
      const Reference reference(logits, targets);
      const Results results(logits, targets, 1);
      CHECK(column(results.combined, 0) == reference.maximum);
      CHECK(relative_error(column(results.combined, 1), reference.sum) <= bounds.loss);
      CHECK(to_doubles(results.loss)[0] == Approx(reference.loss).epsilon(bounds.loss));
      CHECK(relative_error(to_doubles(results.dlogits[0]), reference.dlogits) <= bounds.gradient);
    }
  }
}

TEST_CASE("divided classes give the same bits for any number of ranks") {
  const test::Rank rank;
  for (const Bounds& bounds : kBounds) {
    for (const std::int64_t classes : kClasses) {
      const Tensor logits = test::normal_tensor({7, classes}, bounds.dtype, "logits", 3.0);
      const Tensor targets = some_targets(7, classes);
      const Results whole(logits, targets, 1);
      for (const std::int64_t ranks : {2, 4, 8}) {
        CAPTURE(name_of(bounds.dtype), classes, ranks);
        const Results divided(logits, targets, ranks);
        CHECK(test::same_bits(divided.statistics, whole.statistics));
        CHECK(test::same_bits(divided.combined, whole.combined));
        CHECK(test::same_bits(divided.loss, whole.loss));
        for (std::int64_t r = 0; r < ranks; ++r) {
          const std::int64_t own = classes / ranks;
          CHECK(test::same_bits(divided.dlogits[static_cast<std::size_t>(r)],
                                columns_of(whole.dlogits[0], r * own, own)));
        }
      }
    }
  }
}

TEST_CASE("statistics of a row do not depend on the rows next to it, on threads or on addresses") {
  const Tensor values = [] {
    const test::Rank rank;
    return test::normal_tensor({5, 8 * 300}, DType::f32, "logits", 3.0);
  }();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::vector<double>> seen;
    for (const int threads : {1, 3}) {
      const test::Rank rank(threads);
      const Tensor logits = test::normal_tensor({5, 8 * 300}, dtype, "logits", 3.0);
      const Tensor targets = some_targets(5, logits.size(1));
      for (const Tensor& whole : {logits, test::unaligned(logits)}) {
        const Tensor statistics = test::poisoned({kParts, 5, 3}, DType::f32);
        vocabulary_statistics(statistics, whole, targets, 0, kParts);
        seen.push_back(to_doubles(statistics));
        const Tensor last = test::poisoned({kParts, 1, 3}, DType::f32);
        vocabulary_statistics(last, whole.slice(4, 5), targets.slice(4, 5), 0, kParts);
        for (std::int64_t p = 0; p < kParts; ++p) {
          CHECK(test::same_bits(last.slice(p, p + 1).reshape({1, 3}),
                                statistics.slice(p, p + 1).reshape({5, 3}).slice(4, 5)));
        }
      }
    }
    for (const auto& statistics : seen) CHECK(statistics == seen[0]);
  }
}

TEST_CASE("eight statistics combine as two of four, and one as itself") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, test::kFloating.back()}) {
    if (size_of(dtype) == 2) continue;
    const Tensor statistics = test::normal_tensor({8, 300, 3}, dtype, "statistics", 3.0);
    const auto combined = [&](const Tensor& parts) {
      const Tensor result = test::poisoned({300, 3}, dtype);
      combine_statistics(result, parts);
      return result;
    };
    const Tensor halves = test::poisoned({2, 300, 3}, dtype);
    for (const std::int64_t half : {0, 1}) {
      halves.slice(half, half + 1)
          .reshape({300, 3})
          .copy_from(combined(statistics.slice(4 * half, 4 * half + 4)));
    }
    CHECK(test::same_bits(combined(halves), combined(statistics)));
    CHECK(test::same_bits(combined(statistics.slice(2, 3)),
                          statistics.slice(2, 3).reshape({300, 3})));
  }
}

TEST_CASE("divided classes have the loss and the gradients of whole ones, nearly") {
  const test::Rank rank;
  const Tensor logits = test::normal_tensor({9, 8 * 77}, DType::f32, "logits", 3.0);
  const Tensor targets = some_targets(9, logits.size(1));
  const Results results(logits, targets, 4);
  const Tensor losses = Tensor::empty({9}, DType::f32), sums = Tensor::empty({9}, DType::f32);
  const Tensor dlogits = Tensor::empty(logits.shape(), DType::f32);
  cross_entropy_forward(losses, sums, logits, targets);
  cross_entropy_backward(dlogits, Tensor::full({9}, DType::f32, kScale), logits, sums, targets);
  double loss = 0.0;
  for (const double value : to_doubles(losses)) loss += kScale * value;
  CHECK(to_doubles(results.loss)[0] == Approx(loss).epsilon(1e-6));
  for (std::int64_t r = 0; r < 4; ++r) {
    CHECK(relative_error(to_doubles(results.dlogits[static_cast<std::size_t>(r)]),
                         to_doubles(columns_of(dlogits, r * 154, 154))) <= 3e-6);
  }
}

TEST_CASE("gradients of divided classes may replace the logits, or be rounded to bf16") {
  const test::Rank rank;
  for (const DType dtype : test::kFloating) {
    CAPTURE(name_of(dtype));
    const Tensor logits = test::normal_tensor({5, 8 * 37}, dtype, "logits", 3.0);
    const Tensor targets = some_targets(5, logits.size(1));
    const Results results(logits, targets, 1);
    const auto gradient = [&](const Tensor& dlogits) {
      vocabulary_gradient(dlogits, logits, results.combined, targets, 0, kScale);
    };
    if (dtype == DType::f32) {
      const Tensor rounded = test::poisoned(logits.shape(), DType::bf16);
      const Tensor expected = test::poisoned(logits.shape(), DType::bf16);
      gradient(rounded);
      cast(expected, results.dlogits[0]);
      CHECK(test::same_bits(rounded, expected));
    }
    const Tensor elsewhere = test::unaligned(results.dlogits[0]);
    gradient(elsewhere);
    CHECK(test::same_bits(elsewhere, results.dlogits[0]));
    gradient(logits);
    CHECK(test::same_bits(logits, results.dlogits[0]));
  }
}

TEST_CASE("a part with no logit but minus infinity has no share in the others'") {
  const test::Rank rank;
  for (const std::int64_t present : {0, 3, 7}) {
    std::vector<float> values(8 * 5, -INFINITY);
    values[static_cast<std::size_t>(present * 5 + 1)] = 5.0f;
    values[static_cast<std::size_t>(present * 5 + 2)] = 5.0f;
    const Tensor logits = Tensor::from(values, {1, 40});
    const Tensor targets =
        Tensor::from(std::vector<std::int32_t>{static_cast<std::int32_t>(present * 5 + 2)}, {1});
    const Results results(logits, targets, 2);
    CHECK(to_doubles(results.combined) == std::vector<double>{5.0, 2.0, 5.0});
    CHECK(results.loss.item<float>() == Approx(kScale * std::log(2.0)).epsilon(1e-6));
  }
}

TEST_CASE("a NaN among divided logits makes the loss NaN, and one in an ignored row does not") {
  const test::Rank rank;
  auto values = test::normal_tensor({2, 80}, DType::f32, "logits").to_vector<float>();
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{50, kIgnoreIndex}, {2});
  values[103] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isfinite(Results(Tensor::from(values, {2, 80}), targets, 2).loss.item<float>()));
  values[23] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(Results(Tensor::from(values, {2, 80}), targets, 2).loss.item<float>()));
}

TEST_CASE("the loss of divided classes is added as linear_cross_entropy does") {
  const test::Rank rank;
  // One channel: the logits are the weight times x, here 1.
  constexpr std::int64_t kRows = 3000, kVocabulary = 8;
  const Tensor x = Tensor::full({kRows, 1}, DType::f32, 1.0);
  const Tensor weight = Tensor::zeros({kVocabulary, 1}, DType::f32);
  const Tensor targets = some_targets(kRows, kVocabulary);
  const Tensor expected = Tensor::empty({1}, DType::f32);
  linear_cross_entropy(expected, {}, {}, x, weight, targets, kScale, Accumulate::no);
  // Equal logits: the sums are exact, so both have the same loss in every row.
  const Results results(Tensor::zeros({kRows, kVocabulary}, DType::f32), targets, 2);
  CHECK(test::same_bits(results.loss, expected));
}

TEST_CASE("divided classes give the same bits under every schedule") {
  test::require_equal_under_every_schedule([] {
    const Tensor logits = test::normal_tensor({20, 1600}, DType::f32, "logits");
    const Results results(logits, some_targets(20, 1600), 2);
    return std::pair(to_doubles(results.loss), to_doubles(results.dlogits[1]));
  });
}

TEST_CASE("divided classes of no rows have a loss of 0") {
  const test::Rank rank;
  const Tensor targets = Tensor::empty({0}, DType::i32);
  CHECK(to_doubles(Results(Tensor::empty({0, 8}, DType::f32), targets, 2).loss)[0] == 0.0);
}

TEST_CASE("divided classes name the position of a target that is no class") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor logits = Tensor::zeros({3, 8}, DType::f32);
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{0, 7, -1}, {3});
  const auto message = test::kOnGpu ? Contains("the target at position 2 is neither a class")
                                    : Contains("targets[2] is -1, which");
  const Tensor combined = Tensor::zeros({3, 3}, DType::f32);
  const auto statistics = [&] {
    vocabulary_statistics(Tensor::empty({2, 3, 3}, DType::f32), logits, targets, 0, 2);
    current_stream().synchronize();  // raises the fault that a GPU reports
  };
  const auto gradient = [&] {
    vocabulary_gradient(logits, logits, combined, targets, 0, 1.0);
    current_stream().synchronize();
  };
  REQUIRE_THROWS_WITH(statistics(), message);
  REQUIRE_THROWS_WITH(gradient(), message);
}

TEST_CASE("operations on divided classes reject arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor logits = Tensor::zeros({3, 8}, DType::f32);
  const Tensor targets = Tensor::zeros({3}, DType::i32);
  const Tensor statistics = Tensor::zeros({4, 3, 3}, DType::f32);
  const Tensor combined = Tensor::zeros({3, 3}, DType::f32);
  const auto form = [&](const Tensor& to, std::int64_t first, std::int64_t parts) {
    vocabulary_statistics(to, logits, targets, first, parts);
  };
  REQUIRE_NOTHROW(form(statistics, 0, 4));
  REQUIRE_THROWS_WITH(form(statistics, 0, 3), Contains("3 equal parts"));
  REQUIRE_THROWS_WITH(form(statistics, 0, 0), Contains("0 equal parts"));
  REQUIRE_THROWS_WITH(form(statistics, -1, 4), Contains("first_class is -1"));
  REQUIRE_THROWS_WITH(form(statistics, 0, 2), Contains("statistics"));
  REQUIRE_THROWS_WITH(combine_statistics(combined, Tensor::zeros({3, 3, 3}, DType::f32)),
                      Contains("power of two"));
  REQUIRE_THROWS_WITH(combine_statistics(combined, Tensor::zeros({4, 3, 3}, DType::bf16)),
                      Contains("f32 or f64"));
  REQUIRE_THROWS_WITH(combine_statistics(Tensor::zeros({4, 3}, DType::f32), statistics),
                      Contains("combined"));
  REQUIRE_THROWS_WITH(vocabulary_loss(Tensor::zeros({2}, DType::f32), combined, targets, 1.0),
                      Contains("loss"));
  REQUIRE_THROWS_WITH(vocabulary_loss(Tensor::zeros({1}, DType::f32), statistics, targets, 1.0),
                      Contains("combined"));
  REQUIRE_THROWS_WITH(
      vocabulary_gradient(Tensor::zeros({3, 8}, DType::f16), logits, combined, targets, 0, 1.0),
      Contains("dlogits"));
}

}  // namespace tessera
