// Repeating a run: from its nearest checkpoint to a step, with all bits of the run's losses and norms.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/replay/recorded_run.h"
#include "tools/train/session.h"

namespace tessera {

/// One rank of a repeated run, before a step.
struct ReplayedRank {
  TrainingSession& session;
  Communicator& world;
  BatchSource source;
  std::int64_t step;
};

/// The loss and the norm of a step that was run again.
using StepSeen = std::function<void(std::int64_t step, const StepNumbersSeen& numbers)>;

/// The steps to repeat: `first` to `last`, and those since the checkpoint before `first`.
struct StepsToReplay {
  std::int64_t first = 1, last = 1;
};

/// Starts the run's ranks as they were, restores the newest checkpoint before the first step (or the
/// initial weights), runs the steps up to the last, and calls at_step(rank) before it on every rank.
/// The steps' numbers are compared with metrics.jsonl; rank 0 calls `seen` with them. The run's files
/// stay as they are. Raises Error that names the first step with other bits, or if a checkpoint or the
/// data are missing.
void replay_to(const RecordedRun& run, const StepsToReplay& steps, const StepSeen& seen,
               const std::function<void(ReplayedRank&)>& at_step);

/// Runs the rank's step, with its update, and compares it with metrics.jsonl as above.
StepResult replay_step(const RecordedRun& run, ReplayedRank& rank);

/// "the initial weights", or the checkpoint's path.
std::string start_of(const RecordedRun& run, std::int64_t step);

}  // namespace tessera
