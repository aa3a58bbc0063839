#include "kernels/linear_cross_entropy/options.h"
#include "kernels/matmul/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using test::relative_error;
using test::to_doubles;

/// Random classes; every fifth position is ignored.
Tensor some_targets(std::int64_t tokens, std::int64_t classes) {
  auto values = test::index_tensor({tokens}, classes, "targets").to_vector<std::int32_t>();
  for (std::int64_t i = 2; i < tokens; i += 5) values[i] = kIgnoreIndex;
  return Tensor::from(values, {tokens});
}

double rounded(double value, DType dtype) {
  if (dtype == DType::bf16) return static_cast<float>(bfloat16(float(value)));
  if (dtype == DType::f16) return static_cast<float>(float16(float(value)));
  return value;
}
/// A GPU stores logits and their gradients in x's dtype. The CPU rounds the gradients of bf16.
double stored_logit(double value, DType dtype) {
  return test::kOnGpu ? rounded(value, dtype) : value;
}
double stored_gradient(double value, DType dtype) {
  return test::kOnGpu || dtype == DType::bf16 ? rounded(value, dtype) : value;
}

/// Inputs and poisoned outputs of one call.
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
        targets(some_targets(n, v)),
        loss(test::poisoned({1}, statistics_dtype(dtype))),
        dx(test::poisoned({n, c}, dtype)),
        dweight(test::poisoned({v, c}, dweight_dtype)),
        loss_scale(1.0 / static_cast<double>(std::max<std::int64_t>(n, 1))) {}
  Problem(std::int64_t n, std::int64_t c, std::int64_t v, DType dtype = DType::f32)
      : Problem(n, c, v, dtype, dtype) {}

  void run(Accumulate accumulate, std::int64_t chunk) const {
    linear_cross_entropy(loss, dx, dweight, x, weight, targets, loss_scale, accumulate,
                         kIgnoreIndex, chunk);
  }
};

/// The operation in double, with all logits of a token at once. Logits and their gradients are
/// rounded to `storage` where the kernels do it, so that the bounds need not allow for it.
struct Reference {
  double loss = 0.0;
  std::vector<double> dx, dweight;

  explicit Reference(const Problem& p, std::vector<double> initial_dweight = {})
      : Reference(p, p.x.dtype(), std::move(initial_dweight)) {}
  Reference(const Problem& p, DType storage, std::vector<double> initial_dweight = {})
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
        exponentials.push_back(std::exp(stored_logit(logit, storage)));
        sum += exponentials.back();
      }
      loss -= p.loss_scale * std::log(exponentials[targets[n]] / sum);
      for (std::int64_t v = 0; v < p.classes; ++v) {
        const double dlogit = stored_gradient(
            p.loss_scale * (exponentials[v] / sum - (v == targets[n] ? 1.0 : 0.0)), storage);
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
// Where the order of the f32 sums differs from the reference's, a rounded logit or gradient may round
// the other way. A 16-bit dx is rounded once more, a
// 16-bit dweight after every chunk.
const std::vector<Types> kTypes = [] {
  const double loss = test::kOnGpu ? 1e-4 : 1e-6;
  std::vector<Types> types = {{DType::f32, DType::f32, 1e-6, 2e-6, 2e-6},
                              {DType::bf16, DType::bf16, loss, 0x1p-8, 0x1p-6},
                              {DType::bf16, DType::f32, loss, 0x1p-8, 1e-3},
                              {DType::f16, DType::f16, loss, 0x1p-11, 0x1p-8},
                              {DType::f16, DType::f32, loss, 0x1p-11, test::kOnGpu ? 1e-4 : 2e-6},
                              {DType::f64, DType::f64, 1e-13, 1e-13, 1e-13}};
  if (test::kOnGpu) types.pop_back();
  return types;
}();

/// Runs the problem in chunks, and checks the results against the reference.
void check_run(const Problem& problem, const Types& bounds, std::int64_t chunk,
               Accumulate accumulate = Accumulate::no) {
  const Reference reference(
      problem, accumulate == Accumulate::yes ? to_doubles(problem.dweight) : std::vector<double>{});
  problem.run(accumulate, chunk);
  CHECK(relative_error(to_doubles(problem.loss), {reference.loss}) <= bounds.loss);
  CHECK(relative_error(to_doubles(problem.dx), reference.dx) <= bounds.dx);
  CHECK(relative_error(to_doubles(problem.dweight), reference.dweight) <= bounds.dweight);
}

}  // namespace

TEST_CASE("linear_cross_entropy equals matmul, softmax and their gradients in float64") {
  const test::Rank rank;
  for (const Types& types : kTypes) {
    for (const std::int64_t chunk : {1, 7, 16, 20, 100}) {
      CAPTURE(name_of(types.dtype), name_of(types.dweight_dtype), chunk);
      check_run({20, 12, 37, types.dtype, types.dweight_dtype}, types, chunk);
    }
  }
}

// Rows near 48 KiB. A kernel gets that much shared memory without asking, less its own variables.
TEST_CASE("linear_cross_entropy of vocabularies near the default limit of shared memory") {
  const test::Rank rank;
  for (const auto& [dtype, classes] : {std::pair<DType, std::int64_t>{DType::bf16, 24'455},
                                       {DType::bf16, 24'456},
                                       {DType::bf16, 24'576},
                                       {DType::bf16, 24'584},
                                       {DType::f32, 12'227},
                                       {DType::f32, 12'228},
                                       {DType::f32, 12'288},
                                       {DType::f32, 12'292}}) {
    CAPTURE(name_of(dtype), classes);
    const Problem problem(2, 2, classes, dtype, DType::f32);
    const Reference reference(problem);
    problem.run(Accumulate::no, kAutomaticChunk);
    const bool narrow = dtype == DType::bf16;
    CHECK(relative_error(to_doubles(problem.loss), {reference.loss}) <= (narrow ? 1e-4 : 1e-6));
    CHECK(relative_error(to_doubles(problem.dx), reference.dx) <= (narrow ? 0x1p-8 : 2e-6));
  }
}

// A GPU computes a large vocabulary in 16 bits in two parts: a multiple of 16, and the rest.
TEST_CASE("linear_cross_entropy of a large vocabulary of any size") {
  const test::Rank rank;
  for (const Types& types : kTypes) {
    for (const std::int64_t classes : {1024, 1025, 1039, 1040}) {
      CAPTURE(name_of(types.dtype), name_of(types.dweight_dtype), classes);
      Problem problem(9, 8, classes, types.dtype, types.dweight_dtype);
      auto targets = problem.targets.to_vector<std::int32_t>();
      targets.back() = static_cast<std::int32_t>(classes - 1);  // in the last part
      problem.targets = Tensor::from(targets, {9});
      Types bounds = types;
      bounds.dx *= 1.5;
      check_run(problem, bounds, /*chunk=*/4);
    }
  }
}

TEST_CASE("linear_cross_entropy adds to the weight's gradient if asked to") {
  const test::Rank rank;
  for (const std::int64_t chunk : {4, 100}) {
    const Problem problem(10, 8, 15);
    problem.dweight.copy_from(test::normal_tensor({15, 8}, DType::f32, "dweight"));
    check_run(problem, kTypes.front(), chunk, Accumulate::yes);
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
    problem.targets.copy_from(Tensor::from(std::vector<std::int32_t>(9, kIgnoreIndex), {9}));
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
  const Tensor before = test::normal_tensor({6, 4}, DType::f32, "dweight");
  problem.dweight.copy_from(before);
  problem.run(Accumulate::yes, 4);
  CHECK(test::same_bits(problem.dweight, before));
}

TEST_CASE("linear_cross_entropy gives the same bits under every schedule") {
  test::require_equal_under_every_schedule([] {
    const Problem problem(30, 24, 700);
    problem.run(Accumulate::no, 13);
    return std::vector{to_doubles(problem.loss), to_doubles(problem.dx),
                       to_doubles(problem.dweight)};
  });
}

TEST_CASE("rounded logits change the loss and the gradients by no more than their rounding") {
  const test::Rank rank;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Problem problem(50, 32, 83, dtype, DType::f32);
    const Reference exact(problem, DType::f32);
    problem.run(Accumulate::no, kAutomaticChunk);
    const double u = test::unit_roundoff(dtype);
    // An error of u |z| in logits of N(0, 1), of either sign, averaged over 40 tokens.
    CHECK(relative_error(to_doubles(problem.loss), {exact.loss}) <= 0.2 * u);
    CHECK(relative_error(to_doubles(problem.dx), exact.dx) <= 2 * u);
    CHECK(relative_error(to_doubles(problem.dweight), exact.dweight) <= 2 * u);
  }
}

TEST_CASE("the rank's choice of a chunk is that of calls without one") {
  const auto results = [](std::int64_t choice, std::int64_t chunk) {
    test::Rank rank;
    head_options().chunk = choice;
    const Problem problem(50, 32, 83, DType::bf16,
                          DType::bf16);  // dweight is rounded after each chunk
    problem.run(Accumulate::no, chunk);
    return std::pair(to_doubles(problem.dweight),
                     rank.context.allocator().account()[Category::workspace].peak);
  };
  CHECK(results(7, kAutomaticChunk) == results(kAutomaticChunk, 7));
  CHECK(results(7, 50) == results(kAutomaticChunk, kAutomaticChunk));
  CHECK(results(7, kAutomaticChunk) != results(50, kAutomaticChunk));
}

TEST_CASE("a single class has a loss of zero at any logit") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem problem(6, 4, 1, dtype);
    problem.run(Accumulate::no, 4);
    CHECK(to_doubles(problem.loss) == std::vector<double>{0.0});
    CHECK(to_doubles(problem.dx) == std::vector<double>(24, 0.0));
    CHECK(to_doubles(problem.dweight) == std::vector<double>(4, 0.0));
  }
}

TEST_CASE("huge logits neither overflow nor lose the loss") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem problem(2, 1, 3, dtype);
    problem.targets = Tensor::from(std::vector<std::int32_t>{0, 2}, {2});
    problem.loss_scale = 1.0;
    problem.x = test::tensor_of({32.0, -32.0}, {2, 1}, dtype);
    problem.weight = test::tensor_of({32.0, 32.0, -32.0}, {3, 1}, dtype);
    problem.run(Accumulate::no, 4);
    // Logits 1024 * (1, 1, -1) and 1024 * (-1, -1, 1), spaced by 2^-13 in f32.
    CHECK(problem.loss.item<float>() == Approx(std::log(2.0)).epsilon(1e-6));
    CHECK(relative_error(to_doubles(problem.dx), {0.0, 0.0}) <= 32 * 0x1p-12);
    CHECK(relative_error(to_doubles(problem.dweight), {-16.0, 16.0, 0.0}) <= 0x1p-12);
  }
}

TEST_CASE("linear_cross_entropy of rows longer than a block's shared memory") {
  const test::Rank rank;
  for (const Types& types : kTypes) {
    if (types.dweight_dtype != statistics_dtype(types.dtype)) continue;
    CAPTURE(name_of(types.dtype));
    Types bounds = types;
    bounds.dx *= 2, bounds.dweight *= 2;
    check_run({3, 2, 60003, types.dtype, types.dweight_dtype}, bounds, 2);
  }
}

namespace {

/// The most workspace that one of the three products of a chunk takes.
std::int64_t workspace_of_products(std::int64_t tokens, std::int64_t channels, std::int64_t classes,
                                   DType dtype) {
  test::Rank rank;
  const Tensor x = Tensor::zeros({tokens, channels}, dtype);
  const Tensor weight = Tensor::zeros({classes, channels}, dtype);
  const Tensor dlogits = Tensor::zeros({tokens, classes}, dtype);
  matmul(Tensor::empty({tokens, classes}, DType::f32), x, weight, Transpose::no, Transpose::yes);
  matmul(Tensor::empty({tokens, channels}, dtype), dlogits, weight);
  matmul(Tensor::empty({classes, channels}, DType::f32), dlogits, x, Transpose::yes);
  return rank.context.allocator().account()[Category::workspace].peak;
}

}  // namespace

TEST_CASE("the workspace of linear_cross_entropy has the size that op.h gives, to the byte") {
  test::Rank rank;
  auto& allocator = rank.context.allocator();
  const std::int64_t tokens = 50, channels = 8, classes = 1000, chunk = 16;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem problem(tokens, channels, classes, dtype, DType::f32);
    problem.run(Accumulate::no, chunk);
    allocator.reset_peaks();
    problem.run(Accumulate::no, chunk);
    const std::int64_t size = size_of(dtype), rounded = dtype == DType::f32 ? 0 : size;
    const std::int64_t on_cpu = 4 * chunk * (classes + 1) + rounded * chunk * classes +
                                workspace_of_products(chunk, channels, classes, dtype);
    const std::int64_t on_gpu = size * chunk * 1024 + std::int64_t{cuda::kGemmWorkspaceBytes};
    CHECK(allocator.account()[Category::workspace].peak ==
          4 * tokens + (test::kOnGpu ? on_gpu : on_cpu));
  }
}

TEST_CASE("an f16 weight is widened once per call, and x a chunk at a time", "[cpu]") {
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
    // The products of f16's dx have 16 bits: their sums are scratch.
    CHECK(workspace(DType::f16, tokens) - workspace(DType::f32, tokens) <=
          4 * (1000 * 8 + 2 * 16 * 8) + workspace_of_products(16, 8, 1000, DType::f16));
  }
}

TEST_CASE("linear_cross_entropy names a wrong target by its position in the batch") {
  using Catch::Contains;
  const test::Rank rank;
  Problem problem(10, 4, 6);
  problem.targets = Tensor::from(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 0, 1, 6, -1}, {10});
  const auto run = [&] {
    problem.run(Accumulate::no, 4);
    current_stream().synchronize();  // raises the fault that a GPU reports
  };
  REQUIRE_THROWS_WITH(run(), test::kOnGpu ? Contains("the target at position 8 is neither a class")
                                          : Contains("targets[8] is 6"));
}

TEST_CASE("linear_cross_entropy on the CPU stops before it writes anything", "[cpu]") {
  const test::Rank rank;
  Problem problem(10, 4, 6);
  problem.targets = Tensor::from(std::vector<std::int32_t>(10, 6), {10});
  problem.dx.zero();
  REQUIRE_THROWS_WITH(problem.run(Accumulate::no, 4), Catch::Contains("targets[0] is 6"));
  REQUIRE(to_doubles(problem.dx) == std::vector<double>(40, 0.0));
}

TEST_CASE("linear_cross_entropy rejects arguments that do not fit together") {
  using Catch::Contains;
  const test::Rank rank;
  const auto with = [](Tensor Problem::*which, const Shape& shape, DType dtype = DType::f32) {
    Problem problem(10, 4, 6);
    problem.*which = Tensor::zeros(shape, dtype);
    problem.run(Accumulate::no, 4);
  };
  REQUIRE_THROWS_WITH(with(&Problem::x, {10, 5}), Contains("last dimensions"));
  REQUIRE_THROWS_WITH(with(&Problem::weight, {6, 4}, DType::bf16), Contains("dtypes"));
  REQUIRE_THROWS_WITH(with(&Problem::targets, {9}, DType::i32),
                      Contains("targets") && Contains("[10]"));
  REQUIRE_THROWS_WITH(with(&Problem::loss, {9}), Contains("loss") && Contains("[1]"));
  REQUIRE_THROWS_WITH(with(&Problem::dx, {10, 3}), Contains("dx"));
  REQUIRE_THROWS_WITH(with(&Problem::dweight, {6, 4}, DType::f16), Contains("dweight"));
  Problem problem(10, 4, 6);
  REQUIRE_THROWS_WITH(problem.run(Accumulate::no, -1), Contains("chunk of -1"));
  REQUIRE_THROWS_WITH(Problem(10, 0, 6).run(Accumulate::no, 4), Contains("at least one class"));
  problem.dx = problem.x;
  REQUIRE_THROWS_WITH(problem.run(Accumulate::no, 4), Contains("overlaps"));
}

}  // namespace tessera
