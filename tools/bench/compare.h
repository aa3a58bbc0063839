// Training the same model by several strategies, to compare what they need and to prove that they
// compute the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/comm/communicator.h"
#include "sharding/plan/footprint.h"
#include "tools/config/config.h"

namespace tessera {

struct ComparisonOptions {
  /// The model, the batch and what else is common to all strategies.
  Config config;
  /// Names of strategy_variants() (tools/config/sharding_options.h).
  std::vector<std::string> strategies;
  int steps = 5;
  /// How often each strategy trains from the start.
  int rounds = 1;
};

/// One strategy's figures; bytes are those of the rank that has the most.
struct StrategyFigures {
  std::string strategy;
  /// Of the last step.
  float loss = 0.0f;
  double gradient_norm = 0.0;
  /// Of all parameters after it: FNV-1a over their bytes, in the order of their names.
  std::uint64_t weights_checksum = 0;
  /// Whether sums over ranks are formed in the tree of all ranks (kernels/tree_reduce/op.h): not by
  /// hsdp with several rows whose size is no power of two.
  bool same_tree = true;
  Footprint predicted;
  /// Peaks of the allocator, bytes sent in a step.
  Footprint measured;
  std::int64_t activations = 0;
  /// Medians over the steps of all rounds, the first of each round left out.
  double step_ms = 0.0;
  /// Its time over that of the first strategy's step right before it.
  double step_ratio = 1.0;
  double communication_ms = 0.0;
  double exposed_communication_ms = 0.0;
  double tokens_per_second = 0.0;
};

/// Whether loss, gradient norm and weights have the same bits.
bool same_bits(const StrategyFigures& a, const StrategyFigures& b);

/// Whether they agree: they have the same bits or, where sums over ranks are formed in another
/// order
/// (`same_tree`), losses and norms within 1e-6 of each other.
bool agree(const StrategyFigures& a, const StrategyFigures& b);

/// Raises Error, beginning with `where`, that names the first figure that differs.
void check_footprint(const Footprint& predicted, const Footprint& measured, std::string_view where);

/// Trains `options.steps` steps by each strategy, `options.rounds` times, on random tokens. Each is
/// under way together with the first, step by step in turn: a machine whose speed drifts, or that
/// is busy with something else, slows both alike. So there is memory for two at a time. The
/// result, but for times, is the same on every rank of `world`. Raises Error if, on any rank and in
/// any step, what was measured is not what was predicted, or if ranks or rounds end with different
/// weights.
std::vector<StrategyFigures> compare_strategies(const ComparisonOptions& options,
                                                Communicator& world);

}  // namespace tessera
