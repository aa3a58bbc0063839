// What a run reports of a step, as a line for a person and as a line of metrics.jsonl. The first
// rank reports; times and memory are its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "runtime/allocator.h"

namespace tessera {

struct StepMetrics {
  std::int64_t step = 0;
  float loss = 0.0f;
  std::optional<float> val_loss;
  double learning_rate = 0.0;
  double gradient_norm = 0.0;
  /// Of all ranks.
  double tokens_per_second = 0.0;
  /// Model FLOP/s, of all ranks together, over those of plain matrix products of its shapes,
  /// measured before the run; and, on GPUs, over what their data sheets promise: the model FLOPs
  /// utilization, by training_flops' count. Nothing where the yardstick is unknown.
  std::optional<double> matmul_fraction;
  std::optional<double> mfu;
  double step_ms = 0.0;
  double data_ms = 0.0;
  double forward_ms = 0.0;
  double backward_ms = 0.0;
  double optimizer_ms = 0.0;
  /// Time in collectives, beside computation for the most part: mean of the steps since the last
  /// report.
  double communication_ms = 0.0;
  /// What of it computation waited for, in this step.
  double exposed_communication_ms = 0.0;
  /// By this rank: mean of the steps since the last report.
  double bytes_sent = 0.0;
  MemoryAccount memory;
};

/// "step 100/2000  loss 2.3456 ...", without a newline.
std::string log_line(const StepMetrics& metrics, std::int64_t total_steps);

/// One JSON object. Floating-point numbers are printed with the fewest digits that read back as the
/// same bits, so equal bits give equal text and unequal bits unequal text. A number that is not
/// finite is null.
std::string json_line(const StepMetrics& metrics);

/// metrics.jsonl of a run folder. An earlier run's file there is kept: it is renamed to
/// metrics.1.jsonl, metrics.2.jsonl, ...
class MetricsFile {
 public:
  /// Raises Error if the file cannot be written.
  explicit MetricsFile(const std::filesystem::path& folder);
  void write(const StepMetrics& metrics);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace tessera
