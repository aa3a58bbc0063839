#include "tools/train/reporter.h"

#include <fmt/format.h>

#include "runtime/check.h"
#include "tools/train/prometheus.h"
#include "tools/watch/unit_readings.h"

namespace tessera {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

}  // namespace

Reporter::Reporter(const TrainConfig& config, Clock::time_point start, std::int64_t continued_step,
                   MetricsServer* server)
    : total_steps_(config.steps),
      folder_(config.dir),
      start_(start),
      file_(config.dir, continued_step),
      log_file_(config.dir),
      tensorboard_(config.dir, continued_step),
      progress_(config.progress, config.steps),
      server_(server) {}

void Reporter::introduce(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    progress_.log(line);
    log_file_.write(line);
  }
}

double Reporter::elapsed_s() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Reporter::event(const RunEvent& event) {
  file_.write(json_line(event, elapsed_s(), utc_now()));
}

void Reporter::watch(std::int64_t step, const nlohmann::ordered_json& readings) {
  event({"watch", step, readings});
  tensorboard_.add(step, watch_scalars(readings));
  served_watch_ = prometheus_watch(readings);
  serve();
}

void Reporter::serve() {
  if (server_ != nullptr) server_->publish(served_line_ + served_watch_);
}

void Reporter::report(StepMetrics metrics) {
  metrics.elapsed_s = elapsed_s();
  metrics.time = utc_now();
  const std::string line = json_line(metrics);
  file_.write(line);
  const nlohmann::json numbers = nlohmann::json::parse(line);
  tensorboard_.add(metrics.step, tensorboard_scalars(numbers));
  served_line_ = prometheus_text(numbers);
  serve();
  if (last_.step == 0) log(log_heading(metrics, total_steps_));
  log(log_line(metrics, total_steps_));
  if (!metrics.val_losses.empty()) log(validation_line(metrics));
  if (metrics.val_loss && !(best_val_loss_ <= metrics.val_loss && best_val_loss_)) {
    best_val_loss_ = metrics.val_loss;
    best_step_ = metrics.step;
  }
  if (metrics.peak_total > largest_.peak_total) largest_ = metrics;
  last_ = metrics;
}

void Reporter::sample(std::int64_t step, std::size_t number, const ContinuedText& sample) {
  event({"sample", step, {{"prompt", sample.prompt}, {"text", sample.text}}});
  tensorboard_.add_text(step, fmt::format("sample/{}", number), sample.text);
  progress_.log(fmt::format("{}  sample {}", clock_now(), short_form(sample)));
  log_file_.write(fmt::format("sample {} after step {}\n{}", number, step, long_form(sample)));
}

void Reporter::update(std::int64_t step, float loss, double step_ms) {
  progress_.update(step, loss, step_ms);
}

void Reporter::log(std::string_view line) {
  progress_.log(fmt::format("{}  {}", clock_now(), line));
  log_file_.write(line);
}

void Reporter::summarize() {
  if (last_.step == 0) return;  // a checkpoint had all steps
  std::string line = fmt::format("{} step{} in {}: loss {:.4f}", total_steps_,
                                 total_steps_ == 1 ? "" : "s", clock_text(elapsed_s()), last_.loss);
  if (best_val_loss_)
    line += fmt::format(", best val {:.4f} at step {}", *best_val_loss_, best_step_);
  log(line);
  log(fmt::format("peak {:.1f} MiB on rank {}",
                  static_cast<double>(largest_.peak_total) / kMebibyte, largest_.peak_rank));
}

void Reporter::check_output() const {
  check(progress_.failure().empty(),
        "standard output could not be written: {}; the run itself is complete in {}",
        progress_.failure(), folder_.string());
}

}  // namespace tessera
