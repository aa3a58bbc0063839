// Search: every strategy and mesh for so many ranks, by the predicted time of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/plan/plan.h"

namespace tessera {

/// A strategy, and for hsdp the ranks that share one copy of the parameters.
struct Candidate {
  std::string strategy;
  int shard_size = 0;
  std::int64_t peak = 0;
  double step_seconds = 0.0;
  double exposed_seconds = 0.0;
  std::string limit;
};

/// The candidates with a step's peak of at most `bytes`, if that is given, the fastest first. Raises
/// Error without PlanOptions::machine, or if no strategy suits the ranks or the memory.
std::vector<Candidate> search_strategies(const Config& config, const PlanOptions& options,
                                         std::optional<std::int64_t> bytes);

/// A table of them.
std::string search_table(const std::vector<Candidate>& candidates);

}  // namespace tessera
