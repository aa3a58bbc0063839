#include "kernels/linear_cross_entropy/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

DType wide(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

Tensor filled_with_nan(const Shape& shape, DType dtype) {
  return test::normal_tensor(shape, dtype, "poison", std::numeric_limits<double>::quiet_NaN());
}

/// Inputs and poisoned outputs of one call. Every fifth target is ignored.
struct Problem {
  std::int64_t tokens, channels, classes;
  Tensor x, weight, targets, loss, dx, dweight;
  double loss_scale;

  Problem(std::int64_t n, std::int64_t c, std::int64_t v, DType dtype, DType dweight_dtype)
      : tokens(n),
        channels(c),
        classes(v),
        x(test::normal_tensor({n, c}, dtype, "x")),
        weight(test::normal_tensor({v, c}, dtype, "weight", 1.0 / std::sqrt(c))),
        targets(test::index_tensor({n}, v, "targets")),
        loss(filled_with_nan({1}, wide(dtype))),
        dx(filled_with_nan({n, c}, dtype)),
        dweight(filled_with_nan({v, c}, dweight_dtype)),
        loss_scale(1.0 / static_cast<double>(std::max<std::int64_t>(n, 1))) {
    for (std::int64_t i = 2; i < n; i += 5) targets.data<std::int32_t>()[i] = kIgnoreIndex;
  }
  Problem(std::int64_t n, std::int64_t c, std::int64_t v, DType dtype = DType::f32)
      : Problem(n, c, v, dtype, dtype) {}

  void run(Accumulate accumulate, std::int64_t chunk) const {
    linear_cross_entropy(loss, dx, dweight, x, weight, targets, loss_scale, accumulate,
                         kIgnoreIndex, chunk);
  }
};

/// The whole of it in double, with all logits of a token at once.
struct Reference {
  double loss = 0.0;
  std::vector<double> dx, dweight;

  explicit Reference(const Problem& p, std::vector<double> initial_dweight = {})
      : dx(p.tokens * p.channels), dweight(std::move(initial_dweight)) {
    dweight.resize(p.classes * p.channels);
    const std::vector<double> x = to_doubles(p.x), weight = to_doubles(p.weight);
    const std::vector<std::int32_t> targets = p.targets.to_vector<std::int32_t>();
    for (std::int64_t n = 0; n < p.tokens; ++n) {
      if (targets[n] == kIgnoreIndex) continue;
      std::vector<double> exponentials;
      double sum = 0.0;
      for (std::int64_t v = 0; v < p.classes; ++v) {
        double logit = 0.0;
        for (std::int64_t c = 0; c < p.channels; ++c) {
          logit += x[n * p.channels + c] * weight[v * p.channels + c];
        }
        exponentials.push_back(std::exp(logit));
        sum += exponentials.back();
      }
      loss -= p.loss_scale * std::log(exponentials[targets[n]] / sum);
      for (std::int64_t v = 0; v < p.classes; ++v) {
        const double dlogit =
            p.loss_scale * (exponentials[v] / sum - (v == targets[n] ? 1.0 : 0.0));
        for (std::int64_t c = 0; c < p.channels; ++c) {
          dx[n * p.channels + c] += dlogit * weight[v * p.channels + c];
          dweight[v * p.channels + c] += dlogit * x[n * p.channels + c];
        }
      }
    }
  }
};

struct Types {
  DType dtype, dweight_dtype;
  double loss, dx, dweight;
};
// dlogits are f32. A 16-bit dx is rounded once, a 16-bit dweight after every chunk.
const std::vector<Types> kTypes = {{DType::f64, DType::f64, 1e-13, 1e-13, 1e-13},
                                   {DType::f32, DType::f32, 1e-6, 2e-6, 2e-6},
                                   {DType::bf16, DType::bf16, 1e-6, 0x1p-8, 0x1p-6},
                                   {DType::bf16, DType::f32, 1e-6, 0x1p-8, 2e-6},
                                   {DType::f16, DType::f16, 1e-6, 0x1p-11, 0x1p-8},
                                   {DType::f16, DType::f32, 1e-6, 0x1p-11, 2e-6}};

}  // namespace

TEST_CASE("linear_cross_entropy equals matmul, softmax and their gradients in float64") {
  const test::Rank rank;
  for (const Types& types : kTypes) {
    for (const std::int64_t chunk : {1, 7, 16, 20, 100}) {
      CAPTURE(name_of(types.dtype), name_of(types.dweight_dtype), chunk);
      const Problem problem(20, 12, 37, types.dtype, types.dweight_dtype);
      const Reference reference(problem);
      problem.run(Accumulate::no, chunk);
      CHECK(relative_error(to_doubles(problem.loss), {reference.loss}) <= types.loss);
      CHECK(relative_error(to_doubles(problem.dx), reference.dx) <= types.dx);
      CHECK(relative_error(to_doubles(problem.dweight), reference.dweight) <= types.dweight);
    }
  }
}

TEST_CASE("linear_cross_entropy adds to the weight's gradient when told to") {
  const test::Rank rank;
  for (const std::int64_t chunk : {4, 100}) {
    const Problem problem(10, 8, 15);
    problem.dweight.copy_from(test::normal_tensor({15, 8}, DType::f32, "dweight"));
    const Reference reference(problem, to_doubles(problem.dweight));
    problem.run(Accumulate::yes, chunk);
    CHECK(relative_error(to_doubles(problem.dweight), reference.dweight) <= 2e-6);
    CHECK(relative_error(to_doubles(problem.dx), reference.dx) <= 2e-6);
  }
}

TEST_CASE("linear_cross_entropy computes the loss alone, or one gradient") {
  const test::Rank rank;
  const Problem problem(20, 12, 37);
  const Reference reference(problem);
  const auto run = [&](const Tensor& dx, const Tensor& dweight) {
    linear_cross_entropy(problem.loss, dx, dweight, problem.x, problem.weight, problem.targets,
                         problem.loss_scale, Accumulate::no, kIgnoreIndex, 8);
    CHECK(relative_error(to_doubles(problem.loss), {reference.loss}) <= 1e-6);
  };
  run({}, {});
  run(problem.dx, {});
  CHECK(relative_error(to_doubles(problem.dx), reference.dx) <= 2e-6);
  run({}, problem.dweight);
  CHECK(relative_error(to_doubles(problem.dweight), reference.dweight) <= 2e-6);
}

TEST_CASE("tokens that are all ignored give zero loss and zero gradients") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem problem(9, 4, 6, dtype);
    for (std::int64_t n = 0; n < 9; ++n) problem.targets.data<std::int32_t>()[n] = kIgnoreIndex;
    problem.run(Accumulate::no, 4);
    CHECK(to_doubles(problem.loss) == std::vector<double>{0.0});
    CHECK(to_doubles(problem.dx) == std::vector<double>(36, 0.0));
    CHECK(to_doubles(problem.dweight) == std::vector<double>(24, 0.0));
  }
}

TEST_CASE("no tokens give zero loss and a zero, or untouched, weight gradient") {
  const test::Rank rank;
  const Problem problem(0, 4, 6);
  problem.run(Accumulate::no, 4);
  CHECK(to_doubles(problem.loss) == std::vector<double>{0.0});
  CHECK(to_doubles(problem.dweight) == std::vector<double>(24, 0.0));
  problem.dweight.data<float>()[0] = 3.0f;
  problem.run(Accumulate::yes, 4);
  CHECK(problem.dweight.data<float>()[0] == 3.0f);
}

TEST_CASE("linear_cross_entropy gives the same bits for any number of threads") {
  const auto compute = [](int threads) {
    const test::Rank rank(threads);
    const Problem problem(60, 24, 700);
    problem.run(Accumulate::no, 25);
    return std::vector{to_doubles(problem.loss), to_doubles(problem.dx),
                       to_doubles(problem.dweight)};
  };
  const auto one = compute(1);
  REQUIRE(compute(2) == one);
  REQUIRE(compute(3) == one);
}

TEST_CASE("the workspace holds the logits of one chunk, however many tokens there are") {
  test::Rank rank;
  const auto workspace = [&](std::int64_t tokens, std::int64_t chunk) {
    const Problem problem(tokens, 8, 1000);
    rank.context.allocator().reset_peaks();
    problem.run(Accumulate::no, chunk);
    return rank.context.allocator().account()[Category::workspace].peak;
  };
  constexpr std::int64_t kLogitRow = 1000 * sizeof(float);
  const std::int64_t few = workspace(64, 16);
  CHECK(few >= 16 * kLogitRow);
  CHECK(few < 17 * kLogitRow);
  // Beside the logits only one number per token, its loss.
  CHECK(workspace(512, 16) - few <= (512 - 64) * static_cast<std::int64_t>(sizeof(float)));
  CHECK(workspace(512, 32) - workspace(512, 16) >= 16 * kLogitRow);
}

TEST_CASE("a 16-bit weight is widened once per call, and x a chunk at a time") {
  test::Rank rank;
  const auto workspace = [&](DType dtype, std::int64_t tokens) {
    const Problem problem(tokens, 8, 1000, dtype, DType::f32);
    auto& allocator = rank.context.allocator();
    allocator.reset_peaks();
    allocator.record_history(true);
    problem.run(Accumulate::no, 16);
    allocator.record_history(false);
    int weights = 0;
    for (const MemoryEvent& event : allocator.history()) weights += event.bytes == 4 * 1000 * 8;
    CHECK(weights == (dtype == DType::f32 ? 0 : 1));
    return allocator.account()[Category::workspace].peak;
  };
  for (const std::int64_t tokens : {16, 64}) {
    CHECK(workspace(DType::bf16, tokens) - workspace(DType::f32, tokens) <=
          4 * (1000 * 8 + 2 * 16 * 8));  // and at times a chunk of dx before it is rounded
  }
}

TEST_CASE("linear_cross_entropy names a wrong target by its position in the batch, and stops") {
  using Catch::Contains;
  const test::Rank rank;
  const Problem problem(10, 4, 6);
  problem.targets.data<std::int32_t>()[8] = 6;
  problem.dx.zero();
  REQUIRE_THROWS_WITH(problem.run(Accumulate::no, 4), Contains("targets[8] is 6"));
  REQUIRE(to_doubles(problem.dx) == std::vector<double>(40, 0.0));
}

TEST_CASE("linear_cross_entropy rejects arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto with = [](auto change) {
    Problem problem(10, 4, 6);
    change(problem);
    problem.run(Accumulate::no, 4);
  };
  REQUIRE_THROWS_WITH(with([](Problem& p) {
                        p.x = Tensor::zeros({10, 5}, DType::f32);
                      }),
                      Contains("last dimensions"));
  REQUIRE_THROWS_WITH(with([](Problem& p) {
                        p.weight = Tensor::zeros({6, 4}, DType::bf16);
                      }),
                      Contains("dtypes"));
  REQUIRE_THROWS_WITH(with([](Problem& p) { p.targets = Tensor::zeros({9}, DType::i32); }),
                      Contains("targets") && Contains("[10]"));
  REQUIRE_THROWS_WITH(with([](Problem& p) { p.loss = Tensor::zeros({10}, DType::f32); }),
                      Contains("loss") && Contains("[1]"));
  REQUIRE_THROWS_WITH(with([](Problem& p) {
                        p.dx = Tensor::zeros({10, 3}, DType::f32);
                      }),
                      Contains("dx"));
  REQUIRE_THROWS_WITH(with([](Problem& p) {
                        p.dweight = Tensor::zeros({6, 4}, DType::f16);
                      }),
                      Contains("dweight"));
  REQUIRE_THROWS_WITH(with([](Problem& p) { p.dx = p.x; }), Contains("overlaps"));
  const Problem problem(10, 4, 6);
  REQUIRE_THROWS_WITH(problem.run(Accumulate::no, 0), Contains("chunk of 0"));
}

}  // namespace tessera
