// Dry run: one rank's training step for the sake of its memory accounts.
//
// The model, the strategy, the optimizer and the session are those of `tessera train`. They run in a
// context without memory (RankContext::is_dry), where allocations are accounted for and kernels do
// nothing, among ranks that do not exist. So the accounts are those of a real step, to the byte,
// and there is no second description of them that could differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/expert_rows.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/stream_log.h"
#include "sharding/comm/dry/group_call.h"
#include "tools/train/resolve.h"

namespace tessera {

/// The rank to run, and its place in the job.
struct DryRank {
  int rank = 0;
  int ranks = 1;
  /// 0: all ranks share one node.
  int ranks_per_node = 0;
  /// A GPU must be available: the choice of kernels depends on it.
  Device device;
  /// As in WorldOptions.
  int threads = 0;
};

struct StepMemory {
  /// The accounts of the rank's device during a step that follows other steps.
  MemoryAccount account;
  /// When the total was at its peak: "backward of h.11".
  std::string moment;
  /// The step's allocations and releases, in order.
  std::vector<MemoryEvent> history;
  /// Bytes that the rank sends in the step.
  std::int64_t bytes_sent = 0;
  /// The step's work, and its waits.
  StreamLog log;
  /// The collectives of the log.
  GroupCalls calls;
  /// With runtime.overlap_update: the same of this step and the next, which hides the update of this one.
  std::optional<StreamLog> log_of_two;
  GroupCalls calls_of_two;
  /// The rank's threads. Each has scratch memory, which is a part of the workspace.
  int threads = 0;
};

/// Not a part of the accounts: staging memory of communicators (MPI's, NCCL's, that of threads with
/// several GPUs). Values that a program reads from tensors are zero. Where ranks share out experts, the
/// rows that they exchange are those of `load`. Without, a mixture's counts change no account.
/// Raises Error as TrainingSession does.
StepMemory dry_run(const ResolvedConfig& run, const DryRank& rank,
                   AssumedLoad::Kind load = AssumedLoad::Kind::even);

/// A run with at most so many micro-batches a step. All after the second are alike, unless routers keep
/// the counts of each: with three or more the run has the peak of `run`, and is quicker to run dry. A
/// batch that does not divide among the ranks is rounded up.
ResolvedConfig shortened(const ResolvedConfig& run, int ranks, std::int64_t micro_batches = 3);

}  // namespace tessera
