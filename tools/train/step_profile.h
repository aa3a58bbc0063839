// The profile of a run's steps FIRST to LAST (train.profile): time and memory.
//
// The folder profile/ of the run gets
//   trace.json           a Chrome trace of all ranks: a process per rank, a track per stream
//   memory-rank-0.pickle one per rank, for PyTorch's memory viewer
//   memory.json          rank 0's bytes in use over time, by category; tessera report draws it
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/profiler.h"
#include "sharding/comm/communicator.h"
#include "tools/config/config.h"
#include "tools/train/memory_profile.h"

namespace tessera {

/// One rank's profile; idle without train.profile. All ranks make the same calls.
class StepProfile {
 public:
  /// A collective: all ranks count time from here.
  StepProfile(const TrainConfig& config, Communicator& world);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  /// Begins to record if this step is one of the profile's.
  void start_step(std::int64_t step);
  /// Ends to record after the last of the profile's steps.
  void end_step(std::int64_t step);
  /// Writes the files if the profile's last step is done, or if the run has ended before it: a collective
  /// then. Returns the problem if that failed, on rank 0: a run is worth more than its profile.
  std::string write(bool run_has_ended);

 private:
  void stop_recording();

  const TrainConfig& config_;
  Communicator& world_;
  std::chrono::steady_clock::time_point start_;
  bool recording_ = false;
  bool complete_ = false;
  std::optional<Span> span_;
  MemoryProfile memory_;
};

}  // namespace tessera
