#include "tools/data/soft_targets.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/linear_cross_entropy/op.h"
#include "runtime/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

struct Row {
  std::vector<std::int32_t> classes;
  std::vector<float> weights;
};

Row row_of(std::int32_t next_token, double weight, const std::vector<TokenId>& ids,
           const std::vector<float16>& values) {
  Row row{std::vector<std::int32_t>(1 + ids.size(), 77), std::vector<float>(1 + ids.size(), 77.0f)};
  write_soft_target({row.classes, row.weights}, next_token, weight, ids, values);
  return row;
}

/// Probabilities 1/2, 1/4, 1/4 once renormalized, and an empty place.
const std::vector<TokenId> kIds = {8, 3, 5, 0};
const std::vector<float16> kValues = {float16(-2.0f), float16(-2.0f - 0.6931472f),
                                      float16(-2.0f - 0.6931472f), kNoProbability};
/// Rounding a log-probability to f16.
constexpr double kRounding = 1e-3;

}  // namespace

TEST_CASE("soft targets: the teacher's part is divided by the sum of its probabilities") {
  const Row row = row_of(1, 0.5, kIds, kValues);
  CHECK(row.classes == std::vector<std::int32_t>{1, 8, 3, 5, kIgnoreIndex});
  const std::vector<double> expected = {0.5, 0.25, 0.125, 0.125, 0.0};
  double sum = 0.0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    CHECK(row.weights[k] == Approx(expected[k]).margin(kRounding));
    sum += static_cast<double>(row.weights[k]);
  }
  CHECK(sum == Approx(1.0).epsilon(1e-6));
}

TEST_CASE("soft targets: a next token that the teacher names is one target") {
  const Row row = row_of(3, 0.5, kIds, kValues);
  CHECK(row.classes == std::vector<std::int32_t>{3, 8, kIgnoreIndex, 5, kIgnoreIndex});
  CHECK(row.weights[0] == Approx(0.625).margin(kRounding));
  CHECK(row.weights[2] == 0.0f);
}

TEST_CASE("soft targets: no next token leaves a row empty, no teacher the next token alone") {
  const std::vector<float16> none(kIds.size(), kNoProbability);
  const std::vector<std::int32_t> empty(1 + kIds.size(), kIgnoreIndex);
  CHECK(row_of(kIgnoreIndex, 0.5, kIds, kValues).classes == empty);
  const Row alone = row_of(4, 1.0, kIds, none);
  CHECK(alone.classes ==
        std::vector<std::int32_t>{4, kIgnoreIndex, kIgnoreIndex, kIgnoreIndex, kIgnoreIndex});
  CHECK(alone.weights == std::vector<float>{1.0f, 0.0f, 0.0f, 0.0f, 0.0f});
}

TEST_CASE("soft targets: the least likely ids of f16 still make a distribution") {
  const Row row = row_of(1, 1.0, {2, 3}, {float16(-60000.0f), float16(-60000.0f)});
  CHECK(row.classes == std::vector<std::int32_t>{1, 2, 3});
  CHECK(row.weights == std::vector<float>{0.0f, 0.5f, 0.5f});
}

TEST_CASE("soft targets: loss and gradients are those of PyTorch's two cross-entropies") {
  const test::Rank rank;
  const SafetensorsFile file(TESSERA_SOURCE_DIR "/tests/golden/distillation/expected.safetensors");
  const Tensor x = file.tensor("x"), weight = file.tensor("weight");
  const auto next_tokens = file.tensor("next_tokens").to_vector<std::int32_t>();
  const auto ids = file.tensor("ids").to_vector<std::int32_t>();
  const auto values = file.tensor("log_probabilities").to_vector<float16>();
  const std::size_t rows = next_tokens.size(), places = ids.size() / rows;
  for (const auto& [name, share] : {std::pair("0.0", 0.0), {"0.3", 0.3}, {"1.0", 1.0}}) {
    CAPTURE(name);
    std::vector<std::int32_t> classes;
    std::vector<float> weights;
    for (std::size_t n = 0; n < rows; ++n) {
      const auto first = static_cast<std::ptrdiff_t>(n * places);
      const auto last = first + static_cast<std::ptrdiff_t>(places);
      const Row row = row_of(next_tokens[n], share, {ids.begin() + first, ids.begin() + last},
                             {values.begin() + first, values.begin() + last});
      classes.insert(classes.end(), row.classes.begin(), row.classes.end());
      weights.insert(weights.end(), row.weights.begin(), row.weights.end());
    }
    const Shape shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(1 + places)};
    const Tensor loss = test::poisoned({1}, DType::f32), dx = test::poisoned(x.shape(), DType::f32),
                 dweight = test::poisoned(weight.shape(), DType::f32);
    linear_cross_entropy(loss, dx, dweight, x, weight,
                         {Tensor::from(classes, shape), Tensor::from(weights, shape)}, 1.0,
                         Accumulate::no);
    const auto expected = [&](const std::string& of) {
      return to_doubles(file.tensor(std::string(name) + of));
    };
    CHECK(relative_error(to_doubles(loss), expected(".loss")) <= 1e-6);
    CHECK(relative_error(to_doubles(dx), expected(".grad.x")) <= 1e-5);
    CHECK(relative_error(to_doubles(dweight), expected(".grad.weight")) <= 1e-5);
  }
}

}  // namespace tessera
