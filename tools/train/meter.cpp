#include "tools/train/meter.h"

#include <algorithm>

#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "tools/data/read_times.h"
#include "tools/train/gather.h"

namespace tessera {
namespace {

constexpr double StepMetrics::Times::*kTimes[] = {
    &StepMetrics::Times::step,          &StepMetrics::Times::data,
    &StepMetrics::Times::data_read,     &StepMetrics::Times::forward,
    &StepMetrics::Times::backward,      &StepMetrics::Times::optimizer,
    &StepMetrics::Times::communication, &StepMetrics::Times::exposed_communication};

constexpr double kNanosecondsPerMs = 1e6;

/// The largest number in a column of the ranks' numbers, and the first rank that has it.
struct Largest {
  std::int64_t value;
  int rank;
};

Largest largest(const std::vector<std::vector<std::int64_t>>& ranks, std::size_t column) {
  Largest most = {ranks.front()[column], 0};
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank][column] > most.value) most = {ranks[rank][column], static_cast<int>(rank)};
  }
  return most;
}

}  // namespace

void IntervalMeter::start() {
  context().profiler().reset_totals();
  context().allocator().reset_peaks();
  context().state<ReadTimes>().ms.clear();
  steps_ = 0;
  sum_of_losses_ = 0.0;
  largest_norm_ = 0.0;
  communication_stream().synchronize();  // gathers that the last update queued
  busy_ms_ = world_.busy_ms();
  bytes_sent_ = world_.bytes_sent();
  begin_ = now_();
}

void IntervalMeter::add_step(const StepResult& result) {
  ++steps_;
  sum_of_losses_ += result.loss;
  // The norm of a skipped step is NaN or infinite. Both count as the largest.
  if (!(result.gradient_norm <= largest_norm_)) largest_norm_ = result.gradient_norm;
}

void IntervalMeter::stop() {
  communication_stream().synchronize();
  context().compute_stream().synchronize();
  seconds_ = std::chrono::duration<double>(now_() - begin_).count();
  const Profiler& profiler = context().profiler();
  totals_ = {.step = 1e3 * seconds_,
             .data = profiler.total_ms("data"),
             .forward = profiler.total_ms("forward"),
             .backward = profiler.total_ms("backward"),
             .optimizer = profiler.total_ms("optimizer"),
             .communication = world_.busy_ms() - busy_ms_,
             .exposed_communication = profiler.total_ms("exposed communication")};
  double longest = 0.0;
  slowest_file_.clear();
  for (const auto& [file, ms] : context().state<ReadTimes>().ms) {
    totals_.data_read += ms;
    if (ms > longest) slowest_file_ = file;
    longest = std::max(longest, ms);
  }
  bytes_sent_ = world_.bytes_sent() - bytes_sent_;
}

void IntervalMeter::fill(StepMetrics& metrics) {
  const auto steps = static_cast<double>(steps_);
  std::vector<std::int64_t> own;
  for (const auto time : kTimes) {
    own.push_back(static_cast<std::int64_t>(totals_.*time / steps * kNanosecondsPerMs));
  }
  own.push_back(bytes_sent_);
  const MemoryAccount memory = context().allocator().account();
  for (const MemoryAccount::Line& line : memory.categories) own.push_back(line.peak);
  own.push_back(memory.total.peak);
  own.push_back(memory.retries);

  const auto ranks = gather_numbers(own, world_);
  metrics.mean_loss = sum_of_losses_ / steps;
  metrics.max_gradient_norm = largest_norm_;
  metrics.slowest_file = slowest_file_;
  std::size_t column = 0;
  metrics.slowest_rank = largest(ranks, 0).rank;
  for (const auto time : kTimes) {
    metrics.ms.*time = static_cast<double>(largest(ranks, column++).value) / kNanosecondsPerMs;
  }
  metrics.bytes_sent = static_cast<double>(largest(ranks, column++).value) / steps;
  for (std::int64_t& peak : metrics.peak_bytes) peak = largest(ranks, column++).value;
  const Largest total = largest(ranks, column++);
  metrics.peak_total = total.value;
  metrics.peak_rank = total.rank;
  metrics.memory_retries = largest(ranks, column).value;
}

}  // namespace tessera
