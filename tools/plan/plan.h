// tessera plan: the memory and traffic of a run on any number of ranks, without running it.
#pragma once

#include <string>

#include "tools/config/config.h"

namespace tessera {

struct PlanOptions {
  /// 0: the value of runtime.ranks.
  int ranks = 0;
  /// Machines. Each has the same number of ranks, with consecutive numbers.
  int nodes = 1;
  /// Also prints the elements that each rank owns.
  bool partition = false;
};

/// A page of text. First the configured strategy: its plan, memory by category and bytes sent per
/// step (least, mean and most over the ranks). Then a table of all strategies. With several nodes the
/// table has the bytes that leave a node. Raises Error if `tessera train` would refuse the
/// configuration on so many ranks, or if the nodes cannot have equally many. A batch that does not
/// divide among the ranks is noted on the page.
std::string plan(const Config& config, const PlanOptions& options);

}  // namespace tessera
