// The trace of a run's last steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "sharding/comm/communicator.h"
#include "tools/config/config.h"

namespace tessera {

/// One rank's tracer; idle without train.trace.
class Tracer {
 public:
  /// A trace shows the last few steps: enough to see the shape of a step, few enough to open.
  static constexpr std::int64_t kSteps = 3;

  /// A collective: all ranks count time from here.
  Tracer(const TrainConfig& config, Communicator& world);

  /// Turns tracing on for the last steps.
  void start_step(std::int64_t step) const;
  void stop() const;
  /// Gathers the traces of all ranks, and writes them on rank 0. A collective. Returns the problem
  /// if the file cannot be written: a run is worth more than its trace.
  std::string write() const;

 private:
  const TrainConfig& config_;
  Communicator& world_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tessera
