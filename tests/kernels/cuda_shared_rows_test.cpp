// Rows of logits that the blocks of a cluster share, against the formulas in double: on a GPU, and on the
// emulated one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/cross_entropy/rows.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

constexpr std::int64_t kRows = 3, kEach = 6;
/// Gradients of 100,000 classes are far from the subnormal numbers of f16.
constexpr float kScale = 1024.0f;
constexpr float kFactors[] = {1.0f, 0.5f, 2.0f};

/// A block keeps 25,248 logits of f32 and 50,496 of 16 bits.
struct Case {
  DType dtype;
  std::int64_t classes;
  double gradient;  // a bound on the relative error of each
};
const std::vector<Case> kCases = {
    {DType::f32, 25'248, 4e-6},      // one block
    {DType::f32, 25'249, 4e-6},      // two
    {DType::f32, 50'497, 4e-6},      // four
    {DType::f32, 102'003, 4e-6},     // four, which cannot keep all
    {DType::bf16, 50'497, 0x1p-8},   // two
    {DType::bf16, 101'001, 0x1p-8},  // four
    {DType::f16, 101'056, 0x1p-11},  // four, with vectors alone
};

/// Rows of logits with gaps of NaN between them, and weighted targets. Row 1 is ignored.
struct Problem {
  std::int64_t classes;
  cuda::LogitRows rows;
  Tensor factors = Tensor::from(std::vector<float>(kFactors, kFactors + kRows), {kRows});

  /// Row n begins at element `begin` + n * `stride` behind a multiple of 16 bytes.
  Problem(const std::vector<double>& logits, DType dtype, std::int64_t stride, std::int64_t begin)
      : classes(static_cast<std::int64_t>(logits.size()) / kRows) {
    std::vector<double> memory(static_cast<std::size_t>(begin + kRows * stride), NAN);
    for (std::int64_t n = 0; n < kRows; ++n) {
      std::copy_n(logits.begin() + n * classes, classes, memory.begin() + begin + n * stride);
    }
    const auto count = static_cast<std::int64_t>(memory.size());
    const Tensor buffer = test::tensor_of(memory, {count}, dtype);
    rows = {.logits = buffer.slice(begin, count).reshape({kRows, stride}),
            .classes = classes,
            .targets = targets(),
            .first = 0,
            .ignore_index = kIgnoreIndex};
  }

  /// In the first and the last column, in each quarter, and at both sides of the middle.
  Targets targets() const {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
    for (std::int64_t n = 0; n < kRows; ++n) {
      const std::int64_t middle = (classes / 2 + 63) / 64 * 64;
      for (const std::int64_t column :
           {n, middle - 1, middle, classes / 4 + 40 + n, 3 * classes / 4 + 5, classes - 1}) {
        ids.push_back(static_cast<std::int32_t>(column));
        weights.push_back(column == n ? 1.0f
                                      : 0.015625f * static_cast<float>(1 + ids.size() % kEach));
      }
      if (n == 1) ids[kEach] = kIgnoreIndex;
    }
    return {Tensor::from(ids, {kRows, kEach}), Tensor::from(weights, {kRows, kEach})};
  }
  /// Losses; the logits become gradients.
  Tensor losses_and_gradients() const {
    const Tensor losses = test::poisoned({kRows}, DType::f32);
    cuda::losses_and_gradients_of_rows(losses, rows, kScale, factors);
    return losses;
  }
  Tensor losses() const {
    const Tensor losses = test::poisoned({kRows}, DType::f32);
    cuda::losses_of_rows(losses, rows);
    return losses;
  }
};

/// The first target's logit is large. Then losses are small, and show a sum in another order.
Problem random_problem(const Case& c, std::int64_t stride, std::int64_t begin) {
  std::vector<double> logits = test::normal_values("logits", kRows * c.classes);
  for (double& logit : logits) logit *= 2.0;
  for (std::int64_t n = 0; n < kRows; ++n) logits[n * c.classes + n] = 13.0;
  return {to_doubles(test::tensor_of(logits, {kRows * c.classes}, c.dtype)), c.dtype, stride,
          begin};
}

/// Losses, and the buffer of gradients [rows, stride] with its gaps.
struct Reference {
  std::vector<double> losses, gradients;

  explicit Reference(const Problem& p) : gradients(to_doubles(p.rows.logits)) {
    const auto ids = p.rows.targets.classes.to_vector<std::int32_t>();
    const auto weights = p.rows.targets.weights.to_vector<float>();
    for (std::int64_t n = 0; n < kRows; ++n) {
      double* const row = gradients.data() + n * p.rows.logits.size(1);
      const bool ignored = ids[n * kEach] == kIgnoreIndex;
      double sum = 0.0, at_targets = 0.0;
      for (std::int64_t v = 0; v < p.classes; ++v) sum += std::exp(row[v]);
      for (std::int64_t k = n * kEach; k < (n + 1) * kEach && !ignored; ++k) {
        at_targets += weights[k] * row[ids[k]];
      }
      losses.push_back(ignored ? 0.0 : std::log(sum) - at_targets);
      const double scale = ignored ? 0.0 : double{kScale} * kFactors[n];
      for (std::int64_t v = 0; v < p.classes; ++v) row[v] = scale * std::exp(row[v]) / sum;
      for (std::int64_t k = n * kEach; k < (n + 1) * kEach && !ignored; ++k) {
        row[ids[k]] -= scale * weights[k];
      }
    }
  }
};

/// The worst relative error of a gradient; infinite if a gap has been written.
double worst_error(const Problem& p, const Reference& reference) {
  std::vector<double> found = to_doubles(p.rows.logits), expected = reference.gradients;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool gap = static_cast<std::int64_t>(i) % p.rows.logits.size(1) >= p.classes;
    if (!gap) continue;
    found[i] = std::isnan(found[i]) ? 0.0 : HUGE_VAL;
    expected[i] = 0.0;
  }
  return test::worst_error(found, expected, 1e-4);
}

}  // namespace

TEST_CASE("shared rows: losses and gradients equal the formulas in float64") {
  for (const Case& c : kCases) {
    // Rows at multiples of 64 elements, as those of the head, and rows at any address.
    for (const auto& [stride, begin] :
         {std::pair<std::int64_t, std::int64_t>{(c.classes + 64) / 64 * 64, 0},
          {c.classes + (c.classes + 1) % 2, 1}}) {
      const test::Rank rank;
      CAPTURE(name_of(c.dtype), c.classes, stride);
      const Problem problem = random_problem(c, stride, begin);
      const Reference reference(problem);
      const Tensor losses = problem.losses(), with_gradients = problem.losses_and_gradients();
      CHECK(relative_error(to_doubles(losses), reference.losses) <= 2e-6);
      CHECK(test::same_bits(losses, with_gradients));
      CHECK(worst_error(problem, reference) <= c.gradient);
    }
  }
}

TEST_CASE("shared rows: the same bits under every schedule") {
  for (const Case& c : {kCases[1], kCases[3], kCases[5]}) {
    CAPTURE(name_of(c.dtype), c.classes);
    test::require_equal_under_every_schedule([&] {
      const Problem problem = random_problem(c, c.classes, 0);
      const Tensor losses = problem.losses_and_gradients();
      return std::pair(test::bytes_of(losses), test::bytes_of(problem.rows.logits));
    });
  }
}

// A gradient depends on the logit, the maximum and the sum, of which all blocks have the same bits.
TEST_CASE("shared rows: equal logits have equal gradients in all shares") {
  const test::Rank rank;
  const Case& c = kCases[2];
  std::vector<double> logits = test::normal_values("logits", kRows * c.classes);
  const std::int64_t share = (c.classes / 4 + 64) / 64 * 64, kEqual = 32;
  for (std::int64_t n = 0; n < kRows; ++n) {
    for (std::int64_t i = 3; i < 3 + kEqual; ++i) {
      for (std::int64_t k = 1; k < 4; ++k)
        logits[n * c.classes + k * share + i] = logits[n * c.classes + i];
    }
  }
  const Problem problem(logits, c.dtype, c.classes, 0);
  problem.losses_and_gradients();
  const auto gradients = problem.rows.logits.to_vector<float>();
  bool equal = true;
  for (std::int64_t n = 0; n < kRows; ++n) {
    for (std::int64_t i = 3; i < 3 + kEqual; ++i) {
      for (std::int64_t k = 1; k < 4; ++k) {
        equal = equal && gradients[n * c.classes + k * share + i] == gradients[n * c.classes + i];
      }
    }
  }
  CHECK(equal);
}

TEST_CASE("shared rows: shares of minus infinity have no part in the loss and no gradient") {
  const test::Rank rank;
  const Case& c = kCases[2];
  std::vector<double> logits(static_cast<std::size_t>(kRows * c.classes), -INFINITY);
  const std::int64_t last = c.classes - 1;
  for (std::int64_t n = 0; n < kRows; ++n) {
    logits[n * c.classes + last] = logits[n * c.classes + last - 1] = 5.0;
  }
  Problem problem(logits, c.dtype, c.classes, 0);
  const std::vector<std::int32_t> ids(kRows, static_cast<std::int32_t>(last));
  problem.rows.targets = Tensor::from(ids, {kRows});
  const Tensor losses = problem.losses_and_gradients();
  CHECK(relative_error(to_doubles(losses), std::vector<double>(kRows, std::log(2.0))) <= 1e-6);
  std::vector<double> expected(logits.size(), 0.0);
  for (std::int64_t n = 0; n < kRows; ++n) {
    const double half = 0.5 * double{kScale} * kFactors[n];
    expected[n * c.classes + last] = -half;
    expected[n * c.classes + last - 1] = half;
  }
  CHECK(test::worst_error(to_doubles(problem.rows.logits), expected, 1e-4) <= 2e-6);
}

}  // namespace tessera
