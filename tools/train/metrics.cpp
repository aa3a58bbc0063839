#include "tools/train/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/elementary.h"
#include "runtime/file.h"
#include "tools/train/progress.h"

namespace tessera {
namespace {

// A step that f16 skipped has a norm, maybe a loss, that is not finite; JSON has no such number.
template <typename Float>
std::string number(Float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string rounded(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "null";
}

std::string fraction(const std::optional<double>& value) {
  return value ? rounded(*value, 4) : "null";
}

/// Width of the column "step/total".
int step_width(std::int64_t total_steps) {
  return static_cast<int>(std::max<std::size_t>(6, 2 * std::to_string(total_steps).size() + 1));
}

/// The largest load of a layer; empty for a step that f16 skipped.
std::string load_text(const StepMetrics& m) {
  if (m.expert_load.empty()) return "";
  return fmt::format("{:.2f}", *std::max_element(m.expert_load.begin(), m.expert_load.end()));
}

/// The fields of a mixture of experts.
std::string fields_of_routers(const StepMetrics& m) {
  std::vector<std::string> loads;
  for (const double load : m.expert_load) loads.push_back(rounded(load, 4));
  return fmt::format(R"(, "router_loss": {}, "expert_load": [{}], "idle_experts": {})",
                     number(*m.router_loss), fmt::join(loads, ", "), m.idle_experts);
}

double perplexity(float loss) {
  return exponential(loss);
}

/// The fields of data.validation.
std::string fields_of_sources(const StepMetrics& m) {
  std::vector<std::string> losses, perplexities;
  for (const auto& [name, loss] : m.val_losses) {
    losses.push_back(fmt::format(R"("{}": {})", name, loss));
    perplexities.push_back(fmt::format(R"("{}": {})", name, perplexity(loss)));
  }
  return fmt::format(R"(, "val_losses": {{{}}}, "val_perplexities": {{{}}})",
                     fmt::join(losses, ", "), fmt::join(perplexities, ", "));
}

/// The fields of pairs; `prefix` is that of their names.
std::string fields_of_pairs(std::string_view prefix, const PreferenceMeans& means) {
  return fmt::format(
      R"(, "{0}accuracy": {1}, "{0}margin": {2}, "{0}chosen_reward": {3}, "{0}rejected_reward": {4})",
      prefix, number(means.accuracy), number(means.margin()), number(means.chosen_reward),
      number(means.rejected_reward));
}

/// {"tables": 0.001}. A match has no character that JSON would escape.
std::string field_of_groups(const StepMetrics& m) {
  std::vector<std::string> rates;
  for (const auto& [match, rate] : m.group_learning_rates) {
    rates.push_back(fmt::format(R"("{}": {})", match, rate));
  }
  return fmt::format(R"(, "group_learning_rates": {{{}}})", fmt::join(rates, ", "));
}

/// The lines of a file of metrics whose step is at most `last`. A killed run may have left half a line.
std::string lines_up_to(const std::filesystem::path& path, std::int64_t last) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; last > 0 && std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<std::int64_t>() <= last) kept += line + '\n';
  }
  return kept;
}

std::string percent(double share) {
  return fmt::format(" {:>5.0f}%", 100.0 * share);
}

}  // namespace

std::string log_heading(const StepMetrics& first, std::int64_t total_steps) {
  std::string line =
      fmt::format("{:>{}} {:>7} {:>7} {:>8} {:>7} {:>8} {:>8}", "step", step_width(total_steps),
                  "loss", "val", "lr", "norm", "ms/step", "tokens/s");
  if (first.router_loss) return line + fmt::format(" {:>6}", "load");
  if (first.mfu) return line + fmt::format(" {:>6}", "MFU");
  if (first.matmul_fraction) return line + fmt::format(" {:>6}", "matmul");
  return line;
}

std::string log_line(const StepMetrics& m, std::int64_t total_steps) {
  std::string line = fmt::format("{:>{}} {:>7.4f} {:>7} {:>8.2e} {:>7.3f} {:>8.2f} {:>8.0f}",
                                 fmt::format("{}/{}", m.step, total_steps), step_width(total_steps),
                                 m.loss, m.val_loss ? fmt::format("{:.4f}", *m.val_loss) : "",
                                 m.learning_rate, m.gradient_norm, m.ms.step, m.tokens_per_second);
  if (m.router_loss) return line + fmt::format(" {:>6}", load_text(m));
  if (m.mfu) return line + percent(*m.mfu);
  if (m.matmul_fraction) return line + percent(*m.matmul_fraction);
  return line;
}

std::string json_line(const StepMetrics& m) {
  std::string line = fmt::format(R"({{"step": {}, "loss": {}, "mean_loss": {})", m.step,
                                 number(m.loss), number(m.mean_loss));
  if (m.val_loss) line += fmt::format(R"(, "val_loss": {})", *m.val_loss);
  if (!m.val_losses.empty()) line += fields_of_sources(m);
  if (m.val_loss_ema) line += fmt::format(R"(, "val_loss_ema": {})", *m.val_loss_ema);
  if (m.preference) line += fields_of_pairs("", *m.preference);
  if (m.val_preference) line += fields_of_pairs("val_", *m.val_preference);
  if (m.hellaswag) line += fmt::format(R"(, "hellaswag": {})", *m.hellaswag);
  if (m.router_loss) line += fields_of_routers(m);
  if (!m.group_learning_rates.empty()) line += field_of_groups(m);
  line += fmt::format(
      R"(, "learning_rate": {}, "gradient_norm": {}, "max_gradient_norm": {}, "tokens": {}, )"
      R"("tokens_per_second": {}, "matmul_fraction": {}, "mfu": {}, "step_ms": {}, )"
      R"("data_ms": {}, "data_read_ms": {}, "forward_ms": {}, "backward_ms": {}, "optimizer_ms": {}, )"
      R"("communication_ms": {}, "exposed_communication_ms": {}, "bytes_sent": {}, )"
      R"("slowest_rank": {}, "peak_bytes": {{)",
      m.learning_rate, number(m.gradient_norm), number(m.max_gradient_norm), m.tokens,
      rounded(m.tokens_per_second, 1), fraction(m.matmul_fraction), fraction(m.mfu),
      rounded(m.ms.step, 3), rounded(m.ms.data, 3), rounded(m.ms.data_read, 3),
      rounded(m.ms.forward, 3), rounded(m.ms.backward, 3), rounded(m.ms.optimizer, 3),
      rounded(m.ms.communication, 3), rounded(m.ms.exposed_communication, 3),
      rounded(m.bytes_sent, 0), m.slowest_rank);
  for (int i = 0; i < kCategories; ++i) {
    line += fmt::format(R"("{}": {}, )", name_of(static_cast<Category>(i)), m.peak_bytes[i]);
  }
  return line +
         fmt::format(R"("total": {}}}, "peak_rank": {}, "memory_retries": {}, "elapsed_s": {}, )"
                     R"("time": "{}"}})",
                     m.peak_total, m.peak_rank, m.memory_retries, rounded(m.elapsed_s, 3), m.time);
}

std::string data_warning(const StepMetrics& m) {
  constexpr double kShare = 0.2, kLeastMs = 5.0;
  const StepMetrics::Times& ms = m.ms;
  if (ms.data < kLeastMs || ms.data < kShare * ms.step) return "";
  std::string text = fmt::format("data take {:.0f}% of a step: {:.1f} of {:.1f} ms",
                                 100.0 * ms.data / ms.step, ms.data, ms.step);
  if (2.0 * ms.data_read < ms.data) return text + ", most of it in making rows of tokens";
  return text + fmt::format(", of which {:.1f} ms in reading {}", ms.data_read,
                            m.slowest_file.empty() ? "files on another rank" : m.slowest_file);
}

std::string validation_line(const StepMetrics& m) {
  std::vector<std::string> parts;
  for (const auto& [name, loss] : m.val_losses) {
    parts.push_back(fmt::format("{} {:.4f} ({}{:.1f})", name, loss,
                                parts.empty() ? "perplexity " : "", perplexity(loss)));
  }
  return fmt::format("val {}", fmt::join(parts, ", "));
}

const std::vector<MetricField>& metric_fields() {
  static const std::vector<MetricField> fields = {
      {"step", "The step, counted from 1."},
      {"loss",
       "Mean cross-entropy of this step's valid targets, before the update; or with an objective "
       "of "
       "pairs the mean of their losses."},
      {"mean_loss", "Mean of `loss` over the interval."},
      {"val_loss",
       "Mean cross-entropy of the validation tokens, after the update. Only in lines "
       "with an evaluation."},
      {"val_losses",
       "The same of each source of `data.validation`, by its name. Only with that key. `val_loss` "
       "is then the mean "
       "over all their tokens."},
      {"val_perplexities", "The exponentials of these losses."},
      {"val_loss_ema", "The same of the averages of `train.ema`. Only with `train.evaluate_ema`."},
      {"accuracy",
       "The share of this step's pairs whose chosen answer has the larger reward. Only with an "
       "objective of pairs, as the next three. With the prefix `val_` they are of the validation "
       "pairs."},
      {"margin", "Mean of the chosen answers' rewards minus that of the rejected ones."},
      {"chosen_reward",
       "Mean reward of the chosen answers: `preference.beta` times the log-probability over that "
       "of the reference; for ipo and simpo per token, and for simpo without a reference."},
      {"rejected_reward", "The same of the rejected answers."},
      {"hellaswag",
       "The share of `data.hellaswag`'s questions that the model answers right, after the update. "
       "Only in lines with that measurement."},
      {"router_loss",
       "Sum of this step's balance and z-losses, which `loss` does not contain. Only with experts, "
       "as the next two."},
      {"expert_load",
       "For every layer with experts, the largest number of tokens of an expert in this step over "
       "the mean: 1 in perfect balance. Empty: f16 skipped the step."},
      {"idle_experts", "The number of experts, of all layers, that had no token in this step."},
      {"learning_rate",
       "The learning rate of this step, in the default groups of `optimizer.groups`."},
      {"group_learning_rates",
       "The same for each listed group that is trained, by its `match`. Only with listed groups."},
      {"gradient_norm",
       "Norm of the whole gradient of this step, before clipping. null: f16 "
       "skipped the step."},
      {"max_gradient_norm", "The largest norm of the interval."},
      {"tokens", "Tokens that all ranks have trained on since the run began."},
      {"tokens_per_second", "Tokens of all ranks per second; evaluations do not count."},
      {"matmul_fraction",
       "FLOP/s of the model over those of plain matrix products of its shapes, "
       "if `train.measure_matmul_rate` is set. null: not measured, or the "
       "machine was disturbed while it was (a share above 1)."},
      {"mfu", "FLOP/s of the model over the peak of the GPUs' data sheets; null on a CPU."},
      {"step_ms",
       "Time of a step. Like every `*_ms`: the mean per step of the interval, on the "
       "rank with the largest."},
      {"data_ms", "Loading batches."},
      {"data_read_ms",
       "Reading token files, which is a part of loading. A GPU computes meanwhile."},
      {"forward_ms", "Forward passes."},
      {"backward_ms", "Backward passes."},
      {"optimizer_ms", "Gradient norm, clipping and update."},
      {"communication_ms",
       "Collectives, waiting for other ranks included. Most of it runs next to "
       "computation."},
      {"exposed_communication_ms", "The part of it that computation waited for."},
      {"bytes_sent", "Mean bytes that a rank sent per step, on the rank with the most."},
      {"slowest_rank", "The rank with the largest `step_ms`."},
      {"peak_bytes",
       "Most bytes in use at a time in the interval, by category and in total, each "
       "on the rank with the most."},
      {"peak_rank", "The rank with the largest total."},
      {"memory_retries",
       "Requests since the run began for which the device had no memory until cached memory went "
       "back to it, on the rank with the most. Each makes a GPU's host wait."},
      {"elapsed_s", "Seconds since the run began."},
      {"time", "Wall-clock time of the line, UTC, as ISO 8601."},
  };
  return fields;
}

MetricsFile::MetricsFile(const std::filesystem::path& folder, std::int64_t continued_step)
    : path_(folder / "metrics.jsonl") {
  const std::string kept = lines_up_to(path_, continued_step);
  if (!kept.empty()) write_file_atomically(path_, kept);
  file_.open(path_, kept.empty() ? std::ios::trunc : std::ios::app);
  check(file_.good(), "{}: cannot be written", path_.string());
}

void MetricsFile::write(std::string_view line) {
  file_ << line << '\n' << std::flush;
  check(file_.good(), "{}: writing failed; is the disk full?", path_.string());
}

}  // namespace tessera
