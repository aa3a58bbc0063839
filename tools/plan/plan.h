// What a run would need, without running it: memory and traffic of every rank, for any number of
// ranks.
#pragma once

#include <string>

#include "tools/config/config.h"

namespace tessera {

struct PlanOptions {
  /// 0: as runtime.ranks says.
  int ranks = 0;
  /// Machines that the ranks are spread over, neighbours together.
  int nodes = 1;
  /// Also says which rank owns what.
  bool partition = false;
};

/// A page for a person: the configured strategy's memory by category and bytes sent per step,
/// least, mean and most over the ranks, and a table of all strategies. On several nodes also what
/// crosses from node to node. The batch does not matter and need not suit the ranks. Raises Error
/// if the configured strategy does not suit so many ranks, or the nodes would not get equally many.
std::string plan(const Config& config, const PlanOptions& options);

}  // namespace tessera
