// Times, traffic and memory of the steps between two log lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "sharding/comm/communicator.h"
#include "tools/train/metrics.h"
#include "tools/train/session.h"

namespace tessera {

/// One rank's meter. A line of metrics is made in three steps, so that an evaluation counts for the
/// memory of the interval but not for its times and traffic:
///
///   meter.stop();  evaluate();  meter.fill(metrics);  meter.start();
class IntervalMeter {
 public:
  using Clock = std::chrono::steady_clock;

  /// `now`: the time, which tests replace.
  explicit IntervalMeter(Communicator& world, std::function<Clock::time_point()> now = Clock::now)
      : world_(world), now_(std::move(now)) {}

  /// Begins an interval: sets times to zero, and memory peaks to the bytes in use.
  void start();
  void add_step(const StepResult& result);
  /// Waits for the queued work, and takes the times and the traffic of the interval.
  void stop();
  /// Seconds of the interval, up to stop().
  double seconds() const { return seconds_; }
  std::int64_t steps() const { return steps_; }
  /// Takes the memory peaks, and fills in the means of the interval and the largest values of all
  /// ranks. A collective.
  void fill(StepMetrics& metrics);

 private:
  Communicator& world_;
  const std::function<Clock::time_point()> now_;
  Clock::time_point begin_;
  double seconds_ = 0.0;
  std::int64_t steps_ = 0;
  double sum_of_losses_ = 0.0;
  double largest_norm_ = 0.0;
  double busy_ms_ = 0.0;
  std::int64_t bytes_sent_ = 0;
  StepMetrics::Times totals_;
  std::string slowest_file_;
};

}  // namespace tessera
