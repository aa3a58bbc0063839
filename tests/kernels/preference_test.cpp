#include "kernels/preference/op.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/cross_entropy/op.h"
#include "tests/support/error_of.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::to_doubles;

constexpr std::int64_t kRows = 3, kTokens = 12;
/// The documents of each row: their first places. Odd numbers of them end in padding.
const std::vector<std::vector<std::int32_t>> kDocuments = {{0, 5}, {0, 2, 4, 9, 11}, {0, 4, 8}};

/// Two pairs in row 1, one in the others.
struct Problem {
  Tensor losses, targets, starts, reference;

  explicit Problem(DType dtype) {
    std::vector<std::int32_t> ids, places;
    std::vector<float> values, logs;
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::int32_t t = 0, document = 0; t < kTokens; ++t) {
        const auto& first = kDocuments[row];
        const auto next = static_cast<std::size_t>(document) + 1;
        if (next < first.size() && first[next] == t) ++document;
        const std::int32_t start = first[static_cast<std::size_t>(document)];
        const bool counts = t > start;  // the first token is a prompt
        ids.push_back(counts ? t : kIgnoreIndex);
        places.push_back(start);
        values.push_back(counts ? 0.25f * static_cast<float>((7 * t + 3 * document) % 5) : 0.0f);
        logs.push_back(t == start ? -0.5f * static_cast<float>(document + 1) : 0.0f);
      }
    }
    const Shape shape{kRows, kTokens};
    targets = Tensor::from(ids, shape);
    starts = Tensor::from(places, shape);
    losses = Tensor::empty(shape, dtype);
    reference = Tensor::empty(shape, dtype);
    cast(losses, Tensor::from(values, shape));
    cast(reference, Tensor::from(logs, shape));
  }

  std::vector<double> sums(const PreferenceLoss& options, Out factors = Tensor(),
                           Out sequences = Tensor()) const {
    const Tensor result = Tensor::empty({kPreferenceSums}, losses.dtype());
    preference_loss(result, factors, sequences, losses, targets, starts, reference, options, 0.5);
    return to_doubles(result);
  }
};

const std::vector<PreferenceLoss> kOptions = {
    {.kind = PreferenceKind::dpo, .beta = 0.3, .nll = 0.2},
    {.kind = PreferenceKind::dpo, .beta = 0.5, .label_smoothing = 0.1, .margin = 0.2},
    {.kind = PreferenceKind::ipo, .beta = 0.3},
    {.kind = PreferenceKind::simpo, .beta = 2.0, .margin = 0.4, .nll = 0.5}};

}  // namespace

TEST_CASE("preference_loss: the factors are the derivatives by finite differences") {
  if (test::kOnGpu) return;  // f64
  const test::Rank rank;
  const Problem problem(DType::f64);
  constexpr double kStep = 1e-6;
  for (const PreferenceLoss& options : kOptions) {
    CAPTURE(static_cast<int>(options.kind));
    const Tensor factors = test::poisoned({kRows, kTokens}, DType::f64);
    problem.sums(options, factors);
    const std::vector<double> found = to_doubles(factors);
    const auto* const targets = problem.targets.data<std::int32_t>();
    double* const losses = problem.losses.data<double>();
    for (std::int64_t i = 0; i < kRows * kTokens; ++i) {
      CAPTURE(i);
      // The last document of rows 1 and 2 has no partner.
      const bool in_pair = i < kTokens || (i >= kTokens && i < kTokens + 11) ||
                           (i >= 2 * kTokens && i < 2 * kTokens + 8);
      if (!in_pair) CHECK(found[static_cast<std::size_t>(i)] == 0.0);
      if (targets[i] == kIgnoreIndex) continue;
      const double before = losses[i];
      losses[i] = before + kStep;
      const double above = problem.sums(options)[kPairLoss];
      losses[i] = before - kStep;
      const double below = problem.sums(options)[kPairLoss];
      losses[i] = before;
      CHECK(found[static_cast<std::size_t>(i)] ==
            Approx((above - below) / (2.0 * kStep)).epsilon(1e-6).margin(1e-9));
    }
  }
}

TEST_CASE("preference_loss: sums and sequences equal the formulas, on every schedule") {
  const test::Rank rank;
  test::for_every_schedule([] {
    const Problem problem(DType::f32);
    const Tensor sequences = test::poisoned({kRows, kTokens}, DType::f32);
    const PreferenceLoss options = {.kind = PreferenceKind::dpo, .beta = 0.3};
    const std::vector<double> found = problem.sums(options, Tensor(), sequences);
    const std::vector<double> sums = to_doubles(sequences), losses = to_doubles(problem.losses);
    std::vector<double> expected(kPreferenceSums, 0.0);
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<double> rewards;
      for (std::size_t d = 0; d < kDocuments[row].size(); ++d) {
        const auto first = static_cast<std::size_t>(kDocuments[row][d]);
        const std::size_t last = d + 1 < kDocuments[row].size()
                                     ? static_cast<std::size_t>(kDocuments[row][d + 1])
                                     : std::size_t{kTokens};
        double sum = 0.0;
        for (std::size_t t = first; t < last; ++t) sum -= losses[row * kTokens + t];
        CHECK(sums[row * kTokens + first] == Approx(sum).margin(1e-6));
        rewards.push_back(0.3 * (sum + 0.5 * static_cast<double>(d + 1)));
      }
      for (std::size_t d = 0; d + 1 < rewards.size(); d += 2) {
        const double h = rewards[d] - rewards[d + 1];
        expected[kPairLoss] += 0.5 * std::log1p(std::exp(-h));
        expected[kPairAccuracy] += h > 0.0 ? 0.5 : 0.0;
        expected[kChosenReward] += 0.5 * rewards[d];
        expected[kRejectedReward] += 0.5 * rewards[d + 1];
      }
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      CHECK(found[i] == Approx(expected[i]).epsilon(1e-5));
    }
  });
}

TEST_CASE("preference_loss: tensors of another shape are refused with their name") {
  const test::Rank rank;
  Problem problem(DType::f32);
  problem.starts = Tensor::zeros({kRows, kTokens + 1}, DType::i32);
  CHECK_THAT(test::error_of([&] { problem.sums({}); }), Catch::Contains("starts"));
}

}  // namespace tessera
