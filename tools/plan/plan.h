// tessera plan: the memory and traffic of a run on any number of ranks, without running it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sharding/plan/machine_rates.h"
#include "tools/config/config.h"

namespace tessera {

struct PlanOptions {
  /// 0: the value of runtime.ranks.
  int ranks = 0;
  /// Machines. Each has the same number of ranks, with consecutive numbers.
  int nodes = 1;
  /// If given, the time of a step is predicted too.
  std::optional<MachineRates> machine;
  /// Also prints the elements that each rank owns.
  bool partition = false;
  /// false: ranks on CPUs, which have no other memory to offload to.
  bool on_gpus = true;
};

/// A page of text. First the configured strategy: its plan, memory by category and bytes sent per
/// step (least, mean and most over the ranks). Then a table of all strategies. With several nodes the
/// table has the bytes that leave a node. On several ranks fsdp takes the place of the strategy single,
/// and a line says so. Raises Error if `tessera train` would refuse the
/// configuration on so many ranks, or if the nodes cannot have equally many. A batch that does not
/// divide among the ranks is noted on the page.
std::string plan(const Config& config, const PlanOptions& options);

/// The configuration on several numbers of ranks, a line for each: the figures of its own strategy, and
/// the peak of a step under every strategy; with a machine its time too. A number that does not suit has the reason on its line; raises
/// Error if none suits. `options.ranks` is not used.
std::string plan_sweep(const Config& config, const std::vector<int>& ranks,
                       const PlanOptions& options);

/// The figures of both as one JSON object, all in bytes; docs/seeing.md describes it. Raises Error
/// as plan_sweep does. `options.ranks` and `options.partition` are not used.
std::string plan_json(const Config& config, const std::vector<int>& ranks,
                      const PlanOptions& options);

/// The numbers of a list such as "1,2,8-64". A range doubles its first number until its last: 8, 16, 32,
/// 64. Raises Error for another text, or a number below 1 or above 2^20.
std::vector<int> parse_rank_counts(const std::string& text);

}  // namespace tessera
