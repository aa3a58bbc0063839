// The output of rank 0: console, log.txt, metrics.jsonl and TensorBoard's file.
#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>
#include <vector>

#include "tools/train/continued_texts.h"
#include "tools/train/events.h"
#include "tools/train/log_file.h"
#include "tools/train/metrics.h"
#include "tools/train/metrics_server.h"
#include "tools/train/progress.h"
#include "tools/train/tensorboard.h"

namespace tessera {

class Reporter {
 public:
  using Clock = std::chrono::steady_clock;

  /// `continued_step`: the run goes on after this step; 0: it begins.
  /// `server`: null, or serves the metrics and outlives the reporter.
  Reporter(const TrainConfig& config, Clock::time_point start, std::int64_t continued_step = 0,
           MetricsServer* server = nullptr);

  void introduce(const std::vector<std::string>& lines);
  /// Writes a line of metrics.jsonl.
  void event(const RunEvent& event);
  /// Writes the readings of a watched step (json_of) to metrics.jsonl and TensorBoard.
  void watch(std::int64_t step, const nlohmann::ordered_json& readings);
  /// Writes and prints a line of metrics. Fills in its time and elapsed seconds.
  void report(StepMetrics metrics);
  /// Writes an event, all of the text to log.txt and TensorBoard, and prints a line of it. `number`
  /// counts the samples of a step from 1.
  void sample(std::int64_t step, std::size_t number, const ContinuedText& sample);
  /// Redraws the progress bar.
  void update(std::int64_t step, float loss, double step_ms);
  /// Prints the line after the time of day.
  void log(std::string_view line);
  /// Prints the last losses, the total time and the peak of memory, if there was a step.
  void summarize();
  /// Raises Error if standard output could not be written.
  void check_output() const;

 private:
  double elapsed_s() const;
  void serve();

  std::int64_t total_steps_;
  std::filesystem::path folder_;
  Clock::time_point start_;
  MetricsFile file_;
  LogFile log_file_;
  TensorboardFile tensorboard_;
  Progress progress_;
  MetricsServer* server_;
  /// In Prometheus's format: the last line, and the last watched step.
  std::string served_line_, served_watch_;
  StepMetrics last_;
  std::optional<float> best_val_loss_;
  std::int64_t best_step_ = 0;
  /// The line with the largest peak.
  StepMetrics largest_;
};

}  // namespace tessera
