// Cross-entropies of rows with several weighted targets, against their formulas in double.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/cross_entropy/op.h"
#include "kernels/linear_cross_entropy/op.h"
#include "kernels/vocabulary_cross_entropy/op.h"
#include "tests/support/error_of.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

constexpr std::int64_t kRows = 7, kEach = 5, kParts = 4;

/// Distinct classes; row 1 is ignored, and row 2 has two targets only.
Targets some_targets(std::int64_t classes) {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  for (std::int64_t n = 0; n < kRows; ++n) {
    for (std::int64_t k = 0; k < kEach; ++k) {
      const bool left_out = (n == 1 && k == 0) || (n == 2 && k >= 2);
      const std::int64_t id = (n * 3 + k * (classes / kEach)) % classes;
      ids.push_back(left_out ? kIgnoreIndex : static_cast<std::int32_t>(id));
      weights.push_back(n == 2 ? 0.5f : k == 0 ? 0.5f : 0.125f);
    }
  }
  return {Tensor::from(ids, {kRows, kEach}), Tensor::from(weights, {kRows, kEach})};
}

/// Losses [N] and dlogits [N, V] in double.
struct Reference {
  std::vector<double> losses, dlogits;

  Reference(const Tensor& logits, const Targets& targets) : dlogits(to_doubles(logits)) {
    const auto ids = targets.classes.to_vector<std::int32_t>();
    const auto weights = targets.weights.to_vector<float>();
    const std::int64_t classes = logits.size(1);
    for (std::int64_t n = 0; n < kRows; ++n) {
      double* const row = dlogits.data() + n * classes;
      double sum = 0.0, loss = 0.0;
      for (std::int64_t v = 0; v < classes; ++v) sum += std::exp(row[v]);
      std::vector<double> gradient;
      for (std::int64_t v = 0; v < classes; ++v) gradient.push_back(std::exp(row[v]) / sum);
      for (std::int64_t k = n * kEach; k < (n + 1) * kEach; ++k) {
        if (ids[k] == kIgnoreIndex) continue;
        loss += weights[k] * (std::log(sum) - row[ids[k]]);
        gradient[ids[k]] -= weights[k];
      }
      const bool ignored = ids[n * kEach] == kIgnoreIndex;
      losses.push_back(ignored ? 0.0 : loss);
      for (std::int64_t v = 0; v < classes; ++v) row[v] = ignored ? 0.0 : gradient[v];
    }
  }
};

struct Bounds {
  DType dtype;
  double loss, gradient;
};
const std::vector<Bounds> kBounds = [] {
  std::vector<Bounds> bounds = {{DType::f32, 1e-6, 3e-6},
                                {DType::bf16, 1e-6, 0x1p-8},
                                {DType::f16, 1e-6, 0x1p-10},
                                {DType::f64, 1e-14, 1e-13}};
  bounds.resize(test::kFloating.size());
  return bounds;
}();
constexpr std::int64_t kClasses[] = {40, 4 * 515, 4 * 2051};

}  // namespace

TEST_CASE("weighted targets: losses and gradients are those of a distribution over few classes") {
  const test::Rank rank;
  for (const Bounds& bounds : kBounds) {
    for (const std::int64_t classes : kClasses) {
      CAPTURE(name_of(bounds.dtype), classes);
      const Tensor logits = test::normal_tensor({kRows, classes}, bounds.dtype, "logits", 3.0);
      const Targets targets = some_targets(classes);
      const Reference reference(logits, targets);
      const DType statistics = statistics_dtype(bounds.dtype);
      const Tensor loss = test::poisoned({kRows}, statistics),
                   sums = test::poisoned({kRows}, statistics);
      cross_entropy_forward(loss, sums, logits, targets);
      CHECK(relative_error(to_doubles(loss), reference.losses) <= bounds.loss);
      cross_entropy_backward(logits, Tensor::full({kRows}, statistics, 1.0), logits, sums, targets);
      CHECK(relative_error(to_doubles(logits), reference.dlogits) <= bounds.gradient);
    }
  }
}

TEST_CASE("weighted targets: the head's loss and its gradients agree with the formulas") {
  const test::Rank rank;
  const std::int64_t classes = 40;
  // With a weight of the identity, x has the logits.
  const Tensor x = test::normal_tensor({kRows, classes}, DType::f32, "logits", 3.0);
  std::vector<float> identity(static_cast<std::size_t>(classes * classes), 0.0f);
  for (std::int64_t v = 0; v < classes; ++v)
    identity[static_cast<std::size_t>(v * classes + v)] = 1.0f;
  const Tensor weight = Tensor::from(identity, {classes, classes});
  const Targets targets = some_targets(classes);
  const Reference reference(x, targets);
  for (const std::int64_t chunk : {1, 3, 100}) {
    const Tensor loss = test::poisoned({kRows}, DType::f32),
                 dx = test::poisoned(x.shape(), DType::f32);
    const Tensor dweight = test::poisoned(weight.shape(), DType::f32);
    linear_cross_entropy(loss, dx, dweight, x, weight, targets, 1.0, Accumulate::no, kIgnoreIndex,
                         chunk);
    CHECK(relative_error(to_doubles(loss), reference.losses) <= 1e-6);
    CHECK(relative_error(to_doubles(dx), reference.dlogits) <= 3e-6);
  }
}

TEST_CASE("weighted targets: one target of weight 1 has the bits of a target without weights") {
  const test::Rank rank;
  const Tensor logits = test::normal_tensor({kRows, 515}, DType::f32, "logits", 3.0);
  const Tensor ids = test::index_tensor({kRows}, 515, "targets");
  const auto run = [&](const Targets& targets) {
    const Tensor loss = test::poisoned({kRows}, DType::f32),
                 sums = test::poisoned({kRows}, DType::f32);
    const Tensor dlogits = test::poisoned(logits.shape(), DType::f32);
    cross_entropy_forward(loss, sums, logits, targets);
    cross_entropy_backward(dlogits, loss, logits, sums, targets);
    return std::pair(loss, dlogits);
  };
  const auto plain = run(ids);
  const auto weighted = run({ids.reshape({kRows, 1}), Tensor::full({kRows, 1}, DType::f32, 1.0)});
  CHECK(test::same_bits(plain.first, weighted.first));
  CHECK(test::same_bits(plain.second, weighted.second));
}

TEST_CASE("weighted targets: divided classes agree with the formulas, part by part") {
  const test::Rank rank;
  for (const Bounds& bounds : kBounds) {
    for (const std::int64_t classes : kClasses) {
      CAPTURE(name_of(bounds.dtype), classes);
      const Tensor logits = test::normal_tensor({kRows, classes}, bounds.dtype, "logits", 3.0);
      const Targets targets = some_targets(classes);
      const Reference reference(logits, targets);
      const DType dtype = statistics_dtype(bounds.dtype);
      const Tensor statistics = test::poisoned({kParts, kRows, 3}, dtype);
      vocabulary_statistics(statistics, logits, targets, 0, kParts);
      const Tensor combined = test::poisoned({kRows, 3}, dtype),
                   loss = test::poisoned({kRows}, dtype);
      combine_statistics(combined, statistics);
      vocabulary_loss(loss, combined, targets, 1.0);
      CHECK(relative_error(to_doubles(loss), reference.losses) <= bounds.loss);
      vocabulary_gradient(logits, logits, combined, targets, 0, 1.0);
      CHECK(relative_error(to_doubles(logits), reference.dlogits) <= bounds.gradient);
    }
  }
}

TEST_CASE("weighted targets: weights of another shape, and too many of them, are refused") {
  const test::Rank rank;
  const Tensor logits = test::normal_tensor({2, 8}, DType::f32, "logits"),
               loss = Tensor::zeros({2}, DType::f32);
  const auto refusal = [&](const Tensor& classes, const Tensor& weights) {
    return test::error_of([&] {
      cross_entropy_forward(loss, Tensor::zeros({2}, DType::f32), logits, {classes, weights});
    });
  };
  CHECK_THAT(refusal(Tensor::zeros({2, 3}, DType::i32), Tensor::zeros({2, 2}, DType::f32)),
             Catch::Contains("targets"));
  CHECK_THAT(refusal(Tensor::zeros({2, 1025}, DType::i32), Tensor::zeros({2, 1025}, DType::f32)),
             Catch::Contains("1 to 1024"));
}

}  // namespace tessera
