// Search: every strategy, mesh and cut for so many ranks, by the predicted time of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/plan/plan.h"

namespace tessera {

/// A strategy, for hsdp the ranks that share one copy of the parameters, and the cuts next to it.
struct Candidate {
  std::string strategy;
  int shard_size = 0;
  /// The keys of the cuts, and the micro-batches that keep a micro-batch's rows per rank:
  /// "sharding.tensor_parallel=2", "data.accumulation_steps=2". Empty: ranks share out the batch only.
  std::vector<std::string> keys;
  std::int64_t peak = 0;
  double step_seconds = 0.0;
  double exposed_seconds = 0.0;
  /// The part of the step in which a stage of a pipeline waits for others.
  double bubble = 0.0;
  std::string limit;
};

/// The candidates with a step's peak of at most `bytes`, if that is given, the fastest first. All train on the
/// same batch. Without cuts they are every strategy and mesh. With cuts they are zero1 and fsdp (ddp if each rank
/// has its own part of the model) and
///   tensor ranks    a divisor of a node's ranks
///   stages          not more than micro-batches, in the schedules 1f1b and interleaved with two chunks
///   context ranks   the fewest with which the batch has a row for every rank, and the step fits
///   expert ranks    a divisor of the experts of a mixture
/// Raises Error without PlanOptions::machine, or if no strategy suits the ranks or the memory.
std::vector<Candidate> search_strategies(const Config& config, const PlanOptions& options,
                                         std::optional<std::int64_t> bytes);

/// A table of them.
std::string search_table(const std::vector<Candidate>& candidates);

}  // namespace tessera
