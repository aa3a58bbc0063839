// The metrics of a run: one line for a person, one line of metrics.jsonl.
//
// A line covers the steps since the line before it (the interval). docs/configuration.md has a table
// of the fields.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/category.h"
#include "tools/train/preferences.h"

namespace tessera {

struct StepMetrics {
  std::int64_t step = 0;
  /// The loss of this step, before its update.
  float loss = 0.0f;
  /// The mean loss of the interval.
  double mean_loss = 0.0;
  std::optional<float> val_loss = {};
  /// The losses of the sources of data.validation by their names.
  std::vector<std::pair<std::string, float>> val_losses = {};
  std::optional<float> val_loss_ema = {};
  /// The share of multiple-choice questions that the model answers right.
  std::optional<double> hellaswag = {};
  /// With an objective of pairs: means of this step, and of the validation pairs.
  std::optional<PreferenceMeans> preference = {};
  std::optional<PreferenceMeans> val_preference = {};
  double learning_rate = 0.0;
  /// The same for each listed group that is trained, by its `match`.
  std::vector<std::pair<std::string, double>> group_learning_rates = {};
  /// Norm of the whole gradient before clipping: of this step, and the largest of the interval.
  double gradient_norm = 0.0;
  double max_gradient_norm = 0.0;

  /// A mixture of experts: this step's sum of balance and z-losses, for every layer with experts the
  /// largest load over the mean, and the experts of all layers without a token.
  std::optional<double> router_loss = {};
  std::vector<double> expert_load = {};
  std::int64_t idle_experts = 0;

  /// Tokens that all ranks have trained on since the run began.
  std::int64_t tokens = 0;
  /// Tokens of all ranks per second of the interval, evaluations excluded.
  double tokens_per_second = 0.0;
  /// FLOP/s of the model on all ranks, as a share of the measured rate of plain matrix products, and
  /// on GPUs of their data sheets' peak. No value if the rate is unknown.
  std::optional<double> matmul_fraction = {};
  std::optional<double> mfu = {};

  /// Mean milliseconds per step of the interval; the largest of all ranks.
  struct Times {
    double step = 0.0;
    double data = 0.0;
    /// Reading token files. On the CPU a part of `data`.
    double data_read = 0.0;
    double forward = 0.0;
    double backward = 0.0;
    double optimizer = 0.0;
    /// In collectives, most of it next to computation.
    double communication = 0.0;
    /// The part of communication that computation waited for.
    double exposed_communication = 0.0;
  };
  Times ms;
  /// The file that this rank read for the longest time; empty: none.
  std::string slowest_file = {};
  /// Mean bytes sent per step of the interval; the largest of all ranks.
  double bytes_sent = 0.0;
  /// The rank with the largest mean step time.
  int slowest_rank = 0;

  /// Largest live bytes of the interval, per category and in all; the largest of all ranks.
  std::array<std::int64_t, kCategories> peak_bytes = {};
  std::int64_t peak_total = 0;
  /// The rank with the largest total.
  int peak_rank = 0;
  /// Requests since the run began for which the device had no memory until cached memory went back to
  /// it; the most of all ranks.
  std::int64_t memory_retries = 0;

  /// Seconds since the run began, and the wall-clock time in UTC as ISO 8601.
  double elapsed_s = 0.0;
  std::string time = {};
};

/// The heading of log lines, and a line below it. Both have fixed columns and at most 69 characters
/// (for runs of up to 99,999 steps), so that a clock fits before them. A mixture of experts has a column for the largest load of a layer
/// over its mean. Otherwise a share of a rate has one if the run reports it.
std::string log_heading(const StepMetrics& first, std::int64_t total_steps);
std::string log_line(const StepMetrics& metrics, std::int64_t total_steps);

/// One JSON object. Floating-point numbers are printed with the fewest digits that read back as the
/// same bits, so equal bits give equal text and unequal bits unequal text. A number that is not
/// finite is null.
std::string json_line(const StepMetrics& metrics);

/// "val web 3.1210 (perplexity 22.7), code 1.9012 (6.7)", of a line with val_losses.
std::string validation_line(const StepMetrics& metrics);

/// A warning if steps wait for data for more than a fifth of their time: "data take 35% of a step: 12.3 of
/// 35.1 ms, of which 11.9 ms in reading data/train.bin". Empty: they do not, or only for a few ms.
std::string data_warning(const StepMetrics& metrics);

/// A field of metrics.jsonl, for the reference.
struct MetricField {
  std::string_view name;
  std::string_view meaning;
};
const std::vector<MetricField>& metric_fields();

/// The file metrics.jsonl of a run folder.
class MetricsFile {
 public:
  /// Keeps the lines and events of steps up to `continued_step`, if the file exists; a run that continues writes
  /// those after it again. Raises Error if the file cannot be written.
  explicit MetricsFile(const std::filesystem::path& folder, std::int64_t continued_step = 0);
  void write(std::string_view line);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace tessera
