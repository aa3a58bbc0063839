#include "kernels/cross_entropy/op.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/cross_entropy/gradient_rows.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

struct Bounds {
  DType dtype;
  double loss, gradient;
};
// Losses are f32 for 16-bit logits; gradients are rounded once to the logits' dtype.
const std::vector<Bounds> kBounds = [] {
  std::vector<Bounds> bounds = {{DType::f32, 5e-7, 2e-6},
                                {DType::bf16, 5e-7, 0x1p-8},
                                {DType::f16, 5e-7, 0x1p-11},
                                {DType::f64, 1e-14, 1e-13}};
  bounds.resize(test::kFloating.size());
  return bounds;
}();

/// Classes drawn at random; the second of three or more positions is ignored.
Tensor some_targets(std::int64_t rows, std::int64_t classes) {
  auto values = test::index_tensor({rows}, classes, "targets").to_vector<std::int32_t>();
  if (rows > 2) values[1] = kIgnoreIndex;
  return Tensor::from(values, {rows});
}

struct Losses {
  Tensor loss, logsumexp;
};
Losses losses_of(const Tensor& logits, const Tensor& targets,
                 std::int32_t ignore_index = kIgnoreIndex) {
  const DType dtype = statistics_dtype(logits.dtype());
  const Losses result{test::poisoned({logits.size(0)}, dtype),
                      test::poisoned({logits.size(0)}, dtype)};
  cross_entropy_forward(result.loss, result.logsumexp, logits, targets, ignore_index);
  return result;
}

/// The formulas of op.h in double, term by term.
struct Reference {
  std::vector<double> loss, logsumexp, dlogits;

  Reference(const Tensor& logits, const Tensor& targets, const std::vector<double>& dloss,
            int ignore_index) {
    const std::vector<double> x = to_doubles(logits);
    const std::vector<std::int32_t> target = targets.to_vector<std::int32_t>();
    const std::int64_t classes = logits.size(1);
    for (std::size_t n = 0; n < target.size(); ++n) {
      const double* const row = x.data() + static_cast<std::int64_t>(n) * classes;
      const bool ignored = target[n] == ignore_index;
      double sum = 0.0, relative_to_target = 0.0;
      for (std::int64_t v = 0; v < classes; ++v) {
        sum += std::exp(row[v]);
        relative_to_target += ignored ? 0.0 : std::exp(row[v] - row[target[n]]);
      }
      logsumexp.push_back(std::log(sum));
      loss.push_back(ignored ? 0.0 : std::log(relative_to_target));
      for (std::int64_t v = 0; v < classes; ++v) {
        const double p = std::exp(row[v]) / sum;
        dlogits.push_back(ignored ? 0.0 : dloss[n] * (p - (v == target[n] ? 1.0 : 0.0)));
      }
    }
  }
};

}  // namespace

TEST_CASE("cross-entropy and its gradient equal the formula in float64") {
  const test::Rank rank;
  for (const Bounds& bounds : kBounds) {
    for (const auto& [rows, classes] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {1, 2}, {7, 33}, {40, 1000}, {3, 5003}, {2, 17'003}, {2, 50'600}}) {
      CAPTURE(name_of(bounds.dtype), rows, classes);
      const Tensor logits = test::normal_tensor({rows, classes}, bounds.dtype, "logits");
      const Tensor targets = some_targets(rows, classes);
      const Tensor dloss = test::normal_tensor({rows}, statistics_dtype(bounds.dtype), "dloss");
      const Tensor dlogits = test::poisoned({rows, classes}, bounds.dtype);
      const Reference reference(logits, targets, to_doubles(dloss), kIgnoreIndex);
      const auto [loss, logsumexp] = losses_of(logits, targets);
      cross_entropy_backward(dlogits, dloss, logits, logsumexp, targets);
      CHECK(relative_error(to_doubles(loss), reference.loss) <= bounds.loss);
      CHECK(relative_error(to_doubles(logsumexp), reference.logsumexp) <= bounds.loss);
      CHECK(relative_error(to_doubles(dlogits), reference.dlogits) <= bounds.gradient);

      cross_entropy_backward(logits, dloss, logits, logsumexp, targets);
      CHECK(test::same_bits(logits, dlogits));  // in place
    }
  }
}

TEST_CASE("losses and gradients in one pass have the bits of separate calls", "[cpu]") {
  const test::Rank rank;
  constexpr std::int64_t kRows = 7, kClasses = 2083;
  constexpr double kScale = 0.3;
  for (const auto& [dtype, out] :
       {std::pair{DType::f32, DType::f32}, {DType::f32, DType::bf16}, {DType::f64, DType::f64}}) {
    CAPTURE(name_of(dtype), name_of(out));
    const Tensor logits = test::normal_tensor({kRows, kClasses}, dtype, "logits", 3.0);
    const Tensor targets = some_targets(kRows, kClasses);
    const Tensor gradients = Tensor::empty({kRows, kClasses}, dtype);
    const auto [losses, logsumexp] = losses_of(logits, targets);
    cross_entropy_backward(gradients, Tensor::full({kRows}, dtype, kScale), logits, logsumexp,
                           targets);
    const Tensor rounded = Tensor::empty({kRows, kClasses}, out);
    cast(rounded, gradients);
    const Tensor losses_of_pass = Tensor::empty({kRows}, dtype);
    const Tensor gradients_of_pass = out == dtype ? logits : Tensor::empty({kRows, kClasses}, out);
    cpu::losses_and_gradients(losses_of_pass, gradients_of_pass, logits, targets, kScale, Tensor(),
                              kIgnoreIndex);
    CHECK(test::same_bits(losses_of_pass, losses));
    CHECK(test::same_bits(gradients_of_pass, rounded));
  }
}

TEST_CASE("equal logits cost the logarithm of the number of classes") {
  const test::Rank rank;
  const Tensor logits = Tensor::zeros({2, 50257}, DType::f32);
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{0, 50256}, {2});
  // The sum is exact. A GPU's logf errs by one unit in the last place, and the result is rounded.
  constexpr double kBound = 1.5 * 0x1p-23;
  for (const double value : to_doubles(losses_of(logits, targets).loss)) {
    CHECK(value == Approx(std::log(50257.0)).epsilon(kBound));
  }
}

TEST_CASE("cross-entropy neither overflows nor loses the small difference of huge logits") {
  const test::Rank rank;
  const Tensor logits = Tensor::from(std::vector<float>{1e4f, 1e4f, -1e4f, -3e38f}, {2, 2});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{1, 0}, {2});
  const std::vector<float> values = losses_of(logits, targets).loss.to_vector<float>();
  CHECK(values[0] == Approx(std::log(2.0)).margin(1e-3));  // logits of 1e4 are spaced by 1e-3
  CHECK(values[1] == 0.0f);
}

TEST_CASE("ignored positions have no loss and no gradient, even with logits of NaN") {
  const test::Rank rank;
  const Tensor logits = test::poisoned({2, 3}, DType::f32);
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{7, 7}, {2});
  const Tensor ones = Tensor::from(std::vector<float>{1, 1}, {2});
  const Tensor dlogits = test::poisoned({2, 3}, DType::f32);
  const auto [loss, logsumexp] = losses_of(logits, targets, 7);
  cross_entropy_backward(dlogits, ones, logits, logsumexp, targets, 7);
  CHECK(to_doubles(loss) == std::vector<double>(2, 0.0));
  CHECK(to_doubles(dlogits) == std::vector<double>(6, 0.0));
}

TEST_CASE("a NaN among the logits makes the loss NaN") {
  const test::Rank rank;
  for (const int position : {0, 17, 99}) {
    auto values = test::normal_tensor({1, 100}, DType::f32, "logits").to_vector<float>();
    values[position] = std::numeric_limits<float>::quiet_NaN();
    const Tensor logits = Tensor::from(values, {1, 100});
    const Tensor targets = Tensor::from(std::vector<std::int32_t>{50}, {1});
    CHECK(std::isnan(losses_of(logits, targets).loss.item<float>()));
  }
}

TEST_CASE("cross-entropy gives the same bits under every schedule") {
  test::require_equal_under_every_schedule([] {
    const Tensor logits = test::normal_tensor({20, 1500}, DType::f32, "logits");
    const Tensor targets = test::index_tensor({20}, 1500, "targets");
    const auto [loss, sums] = losses_of(logits, targets);
    cross_entropy_backward(logits, sums, logits, sums, targets);
    return std::pair(to_doubles(loss), to_doubles(logits));
  });
}

TEST_CASE("cross-entropy of no rows does nothing") {
  const test::Rank rank;
  const Tensor logits = Tensor::empty({0, 5}, DType::f32), rows = Tensor::empty({0}, DType::f32);
  const Tensor targets = Tensor::empty({0}, DType::i32);
  cross_entropy_forward(rows, Tensor::empty({0}, DType::f32), logits, targets);
  cross_entropy_backward(logits, rows, logits, rows, targets);
}

TEST_CASE("cross-entropy names the position of a target that is not a class") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor logits = Tensor::zeros({3, 5}, DType::f32);
  const Tensor loss = Tensor::empty({3}, DType::f32), logsumexp = Tensor::zeros({3}, DType::f32);
  const Tensor dlogits = Tensor::empty({3, 5}, DType::f32);
  for (const int wrong : {5, -1}) {
    const Tensor targets = Tensor::from(std::vector<std::int32_t>{0, 4, wrong}, {3});
    const auto message = test::kOnGpu
                             ? Contains("the target at position 2 is neither a class")
                             : Contains("targets[2] is " + std::to_string(wrong) + ", which");
    const auto forward = [&] {
      cross_entropy_forward(loss, logsumexp, logits, targets);
      current_stream().synchronize();  // raises the fault that a GPU reports
    };
    const auto backward = [&] {
      cross_entropy_backward(dlogits, loss, logits, logsumexp, targets);
      current_stream().synchronize();
    };
    REQUIRE_THROWS_WITH(forward(), message);
    REQUIRE_THROWS_WITH(backward(), message);
  }
}

TEST_CASE("cross-entropy of slices at odd addresses") {
  const test::Rank rank;
  for (const Bounds& bounds : kBounds) {
    CAPTURE(name_of(bounds.dtype));
    for (const std::int64_t classes : {3, 37, 515}) {
      const Tensor logits = test::normal_tensor({5, classes}, bounds.dtype, "logits").slice(1, 5);
      const Tensor targets = some_targets(4, classes);
      const Tensor dloss = test::normal_tensor({4}, statistics_dtype(bounds.dtype), "dloss");
      const Tensor whole = test::poisoned({7, classes}, bounds.dtype);
      const Reference reference(logits, targets, to_doubles(dloss), kIgnoreIndex);
      const auto [loss, logsumexp] = losses_of(logits, targets);
      CHECK(relative_error(to_doubles(loss), reference.loss) <= bounds.loss);
      // Logits and gradients of equal and of different alignment.
      for (const std::int64_t begin : {1, 2}) {
        const Tensor dlogits = whole.slice(begin, begin + 4);
        cross_entropy_backward(dlogits, dloss, logits, logsumexp, targets);
        CHECK(relative_error(to_doubles(dlogits), reference.dlogits) <= bounds.gradient);
      }
      for (const Tensor& row : {whole.slice(0, 1), whole.slice(6, 7)}) {
        for (const double value : to_doubles(row)) CHECK(std::isnan(value));
      }
    }
  }
}

TEST_CASE("logits of minus infinity have no part in the loss and no gradient") {
  const test::Rank rank;
  for (const std::int64_t classes : {3, 40}) {
    std::vector<float> values(classes, -INFINITY);
    values[1] = values[2] = 5.0f;
    const Tensor logits = Tensor::from(values, {1, classes});
    const Tensor targets = Tensor::from(std::vector<std::int32_t>{2}, {1});
    const Tensor ones = Tensor::from(std::vector<float>{1}, {1});
    const auto [loss, sums] = losses_of(logits, targets);
    CHECK(loss.item<float>() == Approx(std::log(2.0)).epsilon(1e-6));
    cross_entropy_backward(logits, ones, logits, sums, targets);
    std::vector<double> expected(classes, 0.0);
    expected[1] = 0.5, expected[2] = -0.5;
    CHECK(relative_error(to_doubles(logits), expected) <= 2e-6);
  }
}

TEST_CASE("cross-entropy rejects arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const Tensor logits = Tensor::zeros({3, 5}, DType::f32);
  const Tensor targets = Tensor::zeros({3}, DType::i32);
  const Tensor loss = Tensor::empty({3}, DType::f32), sums = Tensor::empty({3}, DType::f32);
  const auto forward = [](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
    cross_entropy_forward(a, b, c, d);
  };
  REQUIRE_NOTHROW(forward(loss, sums, logits, targets));
  REQUIRE_THROWS_WITH(forward(Tensor::empty({4}, DType::f32), sums, logits, targets),
                      Contains("loss") && Contains("[3]"));
  REQUIRE_THROWS_WITH(forward(loss, Tensor::empty({3}, DType::bf16), logits, targets),
                      Contains("logsumexp") && Contains("f32"));
  REQUIRE_THROWS_WITH(forward(loss, sums, logits.reshape({15}), targets), Contains("logits"));
  REQUIRE_THROWS_WITH(forward(loss, sums, logits, loss), Contains("targets") && Contains("i32"));
  REQUIRE_THROWS_WITH(forward(loss, loss, logits, targets), Contains("overlaps"));
  REQUIRE_THROWS_WITH(
      cross_entropy_backward(Tensor::empty({3, 5}, DType::bf16), loss, logits, sums, targets),
      Contains("dlogits"));
}

}  // namespace tessera
