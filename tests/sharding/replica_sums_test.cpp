// hsdp sums gradients across replicas after each micro-batch, or once after the last. Gradients are
// written by hand, so the expected sum over ranks and micro-batches is known.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "kernels/scale/op.h"
#include "runtime/context.h"
#include "runtime/random.h"
#include "sharding/strategy/strategy.h"
#include "tests/sharding/ranks.h"
#include "tests/support/device.h"
#include "tests/support/findings.h"

namespace tessera {

using test::Findings;

namespace {

constexpr int kRanks = 4;
constexpr int kMicroBatches = 3;
constexpr int kSteps = 2;

/// The gradients that a rank contributes to a parameter in one micro-batch, all micro-batches of a
/// run counted. Whole numbers have exact sums in f32, and in bf16.
std::vector<float> contribution(const Parameter& parameter, int rank, int micro_batch,
                                bool whole_numbers) {
  const RandomStream random(7, parameter.name(), static_cast<std::uint64_t>(rank),
                            static_cast<std::uint64_t>(micro_batch));
  std::vector<float> values;
  for (std::int64_t i = 0; i < parameter.numel(); ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const double value = whole_numbers
                             ? static_cast<double>(random.below(at, 17)) - 8.0
                             : static_cast<double>(random.below(at, 2'000'001)) * 1e-6 - 1.0;
    values.push_back(static_cast<float>(value));
  }
  return values;
}

struct Sum {
  double value = 0.0;
  double magnitude = 0.0;  // the sum of absolute values
};

/// In float64, over all ranks and the micro-batches of `step`.
std::vector<Sum> expected_sum(const Parameter& parameter, int step, bool whole_numbers) {
  std::vector<Sum> sums(static_cast<std::size_t>(parameter.numel()));
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int i = 0; i < kMicroBatches; ++i) {
      const auto values = contribution(parameter, rank, step * kMicroBatches + i, whole_numbers);
      for (std::size_t at = 0; at < sums.size(); ++at) {
        sums[at].value += static_cast<double>(values[at]);
        sums[at].magnitude += std::abs(static_cast<double>(values[at]));
      }
    }
  }
  return sums;
}

Units make_units() {
  Units units;
  units.push_back(
      std::make_unique<Unit>("first", std::vector{Parameter("a", {7, 3}, Initializer::zeros()),
                                                  Parameter("b", {5}, Initializer::zeros())}));
  units.push_back(
      std::make_unique<Unit>("second", std::vector{Parameter("c", {4, 6}, Initializer::zeros())}));
  return units;
}

/// The hooks of one forward and backward pass. Backward writes the contributions.
void run_micro_batch(const Units& units, Strategy& strategy, int rank, int micro_batch,
                     bool whole_numbers) {
  for (const auto& unit : units) {
    strategy.before_forward(*unit);
    strategy.after_forward(*unit);
  }
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    strategy.before_backward(**unit);
    for (const Parameter& parameter : (*unit)->parameters()) {
      parameter.next_contribution();
      const auto values = contribution(parameter, rank, micro_batch, whole_numbers);
      scale(parameter.gradient(), Tensor::from(values, parameter.shape()), 1.0);
    }
    strategy.after_backward(**unit);
  }
}

using CheckShard = std::function<void(const Shard& shard, int step, Findings& findings)>;

/// Runs kSteps steps on kRanks ranks and checks every shard of every rank after each of them.
std::vector<std::string> wrong_gradients(const ShardingOptions& options, bool whole_numbers,
                                         const CheckShard& check_shard) {
  Findings findings;
  test::on_ranks(kRanks, [&](Communicator& world) {
    const Units units = make_units();
    const auto strategy = make_strategy(units, options, 3, &world);
    for (int step = 0; step < kSteps; ++step) {
      Step sharded = strategy->start_step();
      for (int i = 0; i < kMicroBatches; ++i) {
        run_micro_batch(units, *strategy, world.rank(), step * kMicroBatches + i, whole_numbers);
        sharded.finish_micro_batch();
      }
      sharded.discard();
      for (const Shard& shard : strategy->shards()) check_shard(shard, step, findings);
    }
  });
  return findings.wrong();
}

/// Rounding: each addition of an f32 sum errs by at most 2^-24 of the magnitude so far.
CheckShard expect_float64_sum(bool whole_numbers) {
  const double rounding = whole_numbers ? 0.0 : kRanks * kMicroBatches * std::ldexp(1.0, -24);
  return [=](const Shard& shard, int step, Findings& findings) {
    const auto sums = expected_sum(shard.parameter, step, whole_numbers);
    const auto values = shard.gradient.to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Sum& sum = sums[static_cast<std::size_t>(shard.first) + i];
      const double error = std::abs(static_cast<double>(values[i]) - sum.value);
      findings.expect(
          error <= rounding * sum.magnitude,
          fmt::format("step {}, {}[{}]: {} instead of {}", step, shard.parameter.name(),
                      shard.first + static_cast<std::int64_t>(i), values[i], sum.value));
    }
  };
}

std::vector<ShardingOptions> hsdp_2_by_2() {
  std::vector<ShardingOptions> all;
  for (const bool flat : {false, true}) {
    for (const bool once : {false, true}) {
      all.push_back({.strategy = StrategyKind::hsdp,
                     .flatten_parameters = flat,
                     .shard_size = 2,
                     .micro_batches = kMicroBatches,
                     .sum_replicas_once = once});
    }
  }
  return all;
}

std::string name_of_case(const ShardingOptions& options) {
  return fmt::format("flat {}, sum_replicas_once {}, reduce_dtype {}", options.flatten_parameters,
                     options.sum_replicas_once, name_of(options.reduce_dtype));
}

}  // namespace

TEST_CASE("hsdp: gradients are the float64 sum over ranks and micro-batches, to rounding") {
  for (const ShardingOptions& options : hsdp_2_by_2()) {
    INFO(name_of_case(options));
    CHECK(wrong_gradients(options, /*whole_numbers=*/false, expect_float64_sum(false)) ==
          std::vector<std::string>{});
  }
}

TEST_CASE("hsdp: gradients of whole numbers are exact, as ddp's are") {
  const ShardingOptions ddp = {.strategy = StrategyKind::ddp, .micro_batches = kMicroBatches};
  std::vector<ShardingOptions> all = hsdp_2_by_2();
  all.push_back(ddp);
  for (ShardingOptions& options : all) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      options.reduce_dtype = dtype;
      INFO(name_of(options.strategy) << " " << name_of_case(options));
      CHECK(wrong_gradients(options, /*whole_numbers=*/true, expect_float64_sum(true)) ==
            std::vector<std::string>{});
    }
  }
}

}  // namespace tessera
