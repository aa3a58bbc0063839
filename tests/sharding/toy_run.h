// Trains a ToyNet on several ranks and compares its costs with the footprint.
#pragma once

#include <fmt/format.h>

#include <functional>

#include "optim/adamw.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/shards.h"
#include "sharding/plan/footprint.h"
#include "tests/sharding/ranks.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/findings.h"

namespace tessera::test {

struct ToyRun {
  int ranks = 1;
  int layers = 4;
  bool tied = true;
  /// Every other layer has experts.
  bool mixtures = false;
  int steps = 4;
  /// SGD with momentum for matrices, or Muon where the options have a dtype for them, and AdamW for the rest,
  /// instead of gradient descent.
  bool groups = false;
  /// Evaluate after each step: the next step finds other buckets in the slots then.
  bool evaluates = false;
  /// Freezes, checkpoints.
  std::function<void(ToyNet&)> prepare = {};
  /// Called on each rank once its strategy is made.
  std::function<void(int rank)> before_steps = {};
};

/// Memory and traffic of a rank after training, against the prediction.
inline void expect_footprint(const Plan& plan, const Communicator& world, const StateBytes& state,
                             std::optional<std::int64_t> bytes_sent, Findings& findings) {
  const Footprint predicted = footprint_of(plan, world.rank(), state);
  const MemoryAccount account = context().allocator().account();
  const auto expect = [&](const char* what, std::int64_t expected, std::int64_t measured) {
    findings.expect(expected == measured, fmt::format("rank {}: {} predicted {}, measured {}",
                                                      world.rank(), what, expected, measured));
  };
  expect("parameters", predicted.parameters, account[Category::parameters].peak);
  expect("gradients", predicted.gradients, account[Category::gradients].peak);
  expect("optimizer", predicted.optimizer, account[Category::optimizer].peak);
  expect("communication", predicted.communication, account[Category::communication].peak);
  if (bytes_sent) expect("bytes sent", predicted.bytes_sent, *bytes_sent);
  if (context().device().is_cpu()) return;
  const MemoryAccount host = context().host_allocator().account();
  expect("parameters on the host", predicted.host.parameters, host[Category::parameters].peak);
  expect("gradients on the host", predicted.host.gradients, host[Category::gradients].peak);
  expect("optimizer on the host", predicted.host.optimizer, host[Category::optimizer].peak);
}

/// Whether a parameter is in the group of AdamW.
inline bool is_of_adamw(const std::string& name) {
  return name.ends_with("bias") || name.starts_with("norm") || name == "table";
}

constexpr double kToyEma = 0.75;

/// For ShardingOptions::matrix_dtype: Muon has all parameters that are not of AdamW.
inline auto toy_matrices(DType dtype) {
  return [dtype](const Parameter& parameter) {
    return is_of_adamw(parameter.name()) ? std::nullopt : std::optional(dtype);
  };
}

inline std::vector<OptimizerGroups::Group> toy_groups(Strategy& strategy, bool has_muon) {
  std::vector<ParameterShard> adamw, matrices;
  for (ParameterShard& shard : shards_for_optimizer(strategy.shards())) {
    (is_of_adamw(shard.name) ? adamw : matrices).push_back(std::move(shard));
  }
  std::vector<OptimizerGroups::Group> groups(2);
  groups[0].optimizer = std::make_unique<AdamW>(std::move(adamw));
  if (has_muon) {
    groups[1].optimizer = std::make_unique<Muon>(
        std::move(matrices), strategy.make_matrix_exchange([](const Parameter&) { return true; }));
  } else {
    groups[1].optimizer = std::make_unique<Sgd>(std::move(matrices), SgdOptions{.momentum = 0.9});
  }
  return groups;
}

inline StateBytes toy_state(const Strategy& strategy) {
  std::map<std::string, std::int64_t> bytes;
  for (const Parameter& parameter : strategy.parameters()) {
    bytes[parameter.name()] = 4 + (is_of_adamw(parameter.name()) ? 8 : 4);
  }
  return bytes;
}

/// This rank's results. `findings` gets the differences from the footprint.
inline Trained train_rank(Communicator& world, const ToyRun& run, const ShardingOptions& options,
                          Findings& findings) {
  ToyNet net(run.layers, /*checkpointing=*/false, run.tied, run.mixtures);
  if (run.prepare) run.prepare(net);
  const auto strategy = make_strategy(net.units, options, 3, &world);
  std::optional<OptimizerGroups> optimizer;
  const bool has_muon = options.matrix_dtype != nullptr;
  if (run.groups) optimizer.emplace(toy_groups(*strategy, has_muon), kToyEma);
  const ToyTraining training{.steps = run.steps,
                             .learning_rate = run.groups ? 0.05 : 0.5,
                             .optimizer = optimizer ? &*optimizer : nullptr};
  const Stream& stream = context().side_stream("communication");
  if (run.before_steps) run.before_steps(world.rank());
  // Rows on their way to experts are not part of the footprint.
  const auto bytes_sent = [&] { return world.bytes_sent() - strategy->expert_bytes_sent(); };
  Trained trained;
  std::int64_t sent = 0;
  for (int step = 0; step < run.steps; ++step) {
    stream.synchronize();
    sent = bytes_sent();
    training.step(net, *strategy, world, options.micro_batches, step, trained);
    if (!run.evaluates) continue;
    const NoGradient no_gradient;
    net.loss(training.tokens("ids", 99, 0), training.tokens("targets", 99, 0), 1.0);
  }
  stream.synchronize();
  std::optional<std::int64_t> sent_by_step = bytes_sent() - sent;
  if (run.evaluates) sent_by_step.reset();  // it found other buckets in the slots
  const StateBytes state = run.groups ? toy_state(*strategy) : 0;
  expect_footprint(strategy->plan(), world, state, sent_by_step, findings);
  training.collect_weights(*strategy, trained);
  return trained;
}

/// Rank 0's results.
inline Trained train(const ToyRun& run, const ShardingOptions& options, Findings& findings) {
  Trained result;
  on_ranks(run.ranks, [&](Communicator& world) {
    const Trained trained = train_rank(world, run, options, findings);
    if (world.rank() == 0) result = trained;
  });
  return result;
}

}  // namespace tessera::test
