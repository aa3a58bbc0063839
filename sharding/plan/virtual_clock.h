// The virtual clock: when each entry of a dry run's log begins and ends on a machine.
//
// Streams run at the same time, each with its entries in order. A wait ends when the awaited entry
// has ended. If the ranks of a machine share cores, the host makes each call in turn, so a stream's
// work begins only when the compute stream has reached the call. Then the active streams of all
// ranks share the cores evenly: collectives slow down the computation that they overlap with. The
// clock assumes that all ranks do the same at the same time, so no rank waits for a slower one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/profiler.h"
#include "runtime/stream_log.h"
#include "sharding/plan/machine_rates.h"

namespace tessera {

/// The ranks that a log is timed for.
struct ClockedRanks {
  int on_node = 1;
  int threads = 1;
  DType dtype = DType::f32;
};

struct Timeline {
  struct Interval {
    double begin = 0.0;
    double end = 0.0;
  };
  /// By entry, in seconds.
  std::vector<Interval> entries;
  /// The end of the last entry.
  double seconds = 0.0;
  /// The time for which the compute stream waits.
  double exposed = 0.0;
  /// The critical path, the longest chain of entries that wait for each other, by its resources:
  /// "compute", "memory", "link of 8 ranks", "network, 16 ranks", "host memory", "link to the host".
  /// Their sum is `seconds`.
  std::map<std::string, double> chain;

  /// The resource that takes up most of the chain.
  std::string limit() const;
};

Timeline run_clock(const StreamLog& log, const MachineRates& machine, const ClockedRanks& ranks);

/// The log's spans and marks with their times, in the log's order: as a trace has them.
std::vector<Profiler::Record> records_of(const StreamLog& log, const Timeline& timeline);

}  // namespace tessera
