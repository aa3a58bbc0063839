// The virtual clock: when each entry of a dry run's log begins and ends on a machine.
//
// Streams run at the same time, each with its entries in order. A wait ends when the awaited entry
// has ended. If the ranks of a machine share cores, the host makes each call in turn, so a stream's
// work begins only when the compute stream has reached the call. Then the active streams of all
// ranks share the cores evenly: collectives slow down the computation that they overlap with. The
// clock assumes that all ranks with one log do the same at the same time, so none of them waits for a slower one.
//
// The stages of a pipeline do different things. Then there is a log for each stage, of ranks that are alike along
// all other axes, and the clock runs the logs together. A collective of ranks from several logs
// begins when all of these have come to it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/profiler.h"
#include "runtime/stream_log.h"
#include "sharding/comm/dry/group_call.h"
#include "sharding/plan/machine_rates.h"
#include "sharding/plan/mesh.h"

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
  /// The time for which the compute stream waits for transfers or makes them itself, or waits for an update.
  double exposed = 0.0;
  /// The same by the axis along which ranks exchange: "tensor", "context", "expert", "pipeline", or "data" for
  /// all others. "host" is for copies between a GPU and the host, "update" for waits for the optimizer.
  std::map<std::string, double> exposed_by_axis;
  /// The time for which the compute stream waits for other stages, whose part of a transfer has not begun, or is
  /// done before they are. 0 for one log.
  double bubble = 0.0;
  /// The critical path, the longest chain of entries that wait for each other, by its resources:
  /// "compute", "memory", "link of 8 ranks", "network, 16 ranks", "host memory", "link to the host".
  /// Their sum is `seconds`.
  std::map<std::string, double> chain;

  /// The resource that takes up most of the chain.
  std::string limit() const;
};

/// A log with its collectives.
struct RankLog {
  const StreamLog* log = nullptr;
  const GroupCalls* calls = nullptr;
};

/// The axis of a group, as in Timeline::exposed_by_axis. A group along context ranks alone is "context", also if it
/// gathers parameters.
std::string axis_of(const GroupCall& call, const Mesh& mesh);

/// The logs' times, which have a common start. `seconds` and `chain` are the same for all: those of the step.
/// Raises Error if an entry waits for one that never ends.
std::vector<Timeline> run_clock(const std::vector<RankLog>& logs, const Mesh& mesh,
                                const MachineRates& machine, const ClockedRanks& ranks);
/// One log by itself. All its transfers count for the axis "data".
Timeline run_clock(const StreamLog& log, const MachineRates& machine, const ClockedRanks& ranks);

/// The log's spans and marks with their times, in the log's order: as a trace has them.
std::vector<Profiler::Record> records_of(const StreamLog& log, const Timeline& timeline);

}  // namespace tessera
