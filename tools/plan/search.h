// Search: every strategy, mesh and cut for so many ranks, by the predicted time of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/plan/cuts.h"
#include "tools/plan/plan.h"

namespace tessera {

/// A strategy, for hsdp the ranks that share one copy of the parameters, and the cuts next to it.
struct Candidate {
  std::string strategy;
  int shard_size = 0;
  Cuts cuts = {};
  /// The keys next to the strategy: of the cuts, of the micro-batches that keep a micro-batch's rows per rank, and of
  /// the reduction or recomputation, where these differ from the configuration: "data.accumulation_steps=2". Empty: it
  /// is the configuration itself under another strategy.
  std::vector<std::string> keys = {};
  std::int64_t peak = 0;
  double step_seconds = 0.0;
  double exposed_seconds = 0.0;
  /// The part of the step in which a stage of a pipeline waits for others.
  double bubble = 0.0;
  std::string limit = {};
};

/// The candidates with a step's peak of at most `bytes`, if that is given, the fastest first. All train on the
/// same batch, which `tessera train` would take. Without cuts they are every strategy and mesh. With cuts they
/// are zero1 and fsdp (ddp if each rank has its own part of the model), across nodes also hsdp on the fewest
/// ranks that fit, and
///   tensor ranks    a divisor of a node's ranks
///   stages          not more than micro-batches, in the schedules gpipe, 1f1b and zero_bubble, and in interleaved with
///                   2 or 4 chunks
///   context ranks   the fewest with which the batch has a row for every rank, and the step fits without
///                   recomputation
///   expert ranks    a divisor of the experts of a mixture
/// Cuts are left out if a step with less communication than any could not be faster than a candidate that has
/// no other cuts (LeastTime), or if the meshes before with the same kinds of cuts were no faster, several in a
/// row. Several micro-batches are reduced once if that fits, and else each. With `bytes` all blocks are
/// computed again in backward where nothing fits without. Raises Error without PlanOptions::machine, or if no
/// strategy suits the ranks, the batch or the memory.
std::vector<Candidate> search_strategies(const Config& config, const PlanOptions& options,
                                         std::optional<std::int64_t> bytes);

/// A table of them.
std::string search_table(const std::vector<Candidate>& candidates);
/// One JSON object; docs/seeing.md describes it.
std::string search_json(const std::vector<Candidate>& candidates);

}  // namespace tessera
