#include "tools/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "tools/config/parse.h"
#include "tools/data/loader.h"
#include "tools/data/manifest.h"
#include "tools/train/matmul_rate.h"
#include "tools/train/metrics.h"
#include "tools/train/progress.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A trace shows the last few steps: enough to see a step's shape, small enough to open.
constexpr std::int64_t kTracedSteps = 3;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Settings that no single key can be checked for.
void check_consistent(const Config& config) {
  check(!config.data.train.empty(),
        "data.train is not set: name a token file made by "
        "'tessera prepare'");
  check(config.data.batch_size % config.data.accumulation_steps == 0,
        "data.batch_size {} is not a multiple of data.accumulation_steps {}",
        config.data.batch_size, config.data.accumulation_steps);
  check(config.optimizer.warmup_steps <= config.train.steps,
        "optimizer.warmup_steps {} is more than train.steps {}", config.optimizer.warmup_steps,
        config.train.steps);
  check(config.optimizer.schedule != "warmup_stable_decay" ||
            config.optimizer.warmup_steps + config.optimizer.decay_steps <= config.train.steps,
        "optimizer.warmup_steps {} and optimizer.decay_steps {} are together more than train.steps "
        "{}",
        config.optimizer.warmup_steps, config.optimizer.decay_steps, config.train.steps);
}

/// Tokens the data may contain: what the manifest beside it says, or 0 without one.
std::int64_t vocabulary_of(const fs::path& token_file) {
  const fs::path folder = token_file.parent_path();
  if (!fs::exists(folder / Manifest::kFileName)) return 0;
  return read_manifest(folder).vocab_size;
}

/// The training and validation files, opened and checked against the model.
struct Data {
  Data(const Config& config, std::int64_t vocab_size)
      : train(open(config.data.train, vocab_size), config.data.sequence_length,
              SampleOrder::shuffled, static_cast<std::uint64_t>(config.train.seed)) {
    if (!config.data.val.empty()) {
      val.emplace(open(config.data.val, vocab_size), config.data.sequence_length,
                  SampleOrder::sequential);
    }
  }

  static TokenFile open(const fs::path& path, std::int64_t vocab_size) {
    TokenFile file(path);
    file.check_vocabulary(vocab_size);
    return file;
  }

  TokenLoader train;
  std::optional<TokenLoader> val;
};

class Run {
 public:
  explicit Run(const Config& config)
      : config_(config),
        session_(config, vocabulary_of(config.data.train)),
        data_(config, session_.model().vocab_size()),
        matmul_rate_(sgemm_rate(
            session_.model().training_matmuls(micro_batch_rows() * config.data.sequence_length),
            context().threads().size(), /*repeats=*/1)) {
    context().allocator().trim();
    context().allocator().reset_peaks();  // the yardstick's memory is not the run's
  }

  void execute() {
    make_writable_directory(config_.train.dir);
    write_file_atomically(config_.train.dir / "config.yaml", to_yaml(config_));
    MetricsFile metrics_file(config_.train.dir);
    Progress progress(config_.train.progress, config_.train.steps);
    progress.log(introduction());
    interval_start_ = Clock::now();
    for (std::int64_t step = 1; step <= config_.train.steps; ++step) {
      StepMetrics metrics = train_step(step);
      if (is_due(step, config_.train.eval_every) && data_.val)
        metrics.val_loss = validation_loss(step);
      if (is_due(step, config_.train.log_every) || metrics.val_loss) {
        fill_interval(metrics);
        metrics_file.write(metrics);
        progress.log(log_line(metrics, config_.train.steps));
      }
      progress.update(step, metrics.loss);
    }
    progress.log(save());
  }

 private:
  std::int64_t micro_batch_rows() const {
    return config_.data.batch_size / config_.data.accumulation_steps;
  }
  std::int64_t tokens_per_step() const {
    return config_.data.batch_size * config_.data.sequence_length;
  }
  /// Every so many steps, and after the first and the last; never if `every` is 0.
  bool is_due(std::int64_t step, std::int64_t every) const {
    return every > 0 && (step % every == 0 || step == 1 || step == config_.train.steps);
  }

  std::string introduction() const {
    const RankContext& here = context();
    return fmt::format(
        "{}: {:.2f}M parameters on {} with {} threads; {} tokens a step; matmul rate "
        "{:.0f} GFLOP/s",
        config_.train.dir.string(), static_cast<double>(session_.parameter_count()) * 1e-6,
        to_string(here.device()), context().threads().size(), tokens_per_step(),
        matmul_rate_ * 1e-9);
  }

  StepMetrics train_step(std::int64_t step) {
    Profiler& profiler = context().profiler();
    profiler.reset_totals();
    profiler.set_tracing(!config_.train.trace.empty() && step > config_.train.steps - kTracedSteps);
    const auto begin = Clock::now();
    const StepResult result =
        session_.step(step, [&](std::int64_t s, std::int64_t first, std::int64_t rows) {
          return data_.train.load(s - 1, first, rows, config_.data.batch_size);
        });
    ++interval_steps_;
    return {.step = step,
            .loss = result.loss,
            .learning_rate = result.learning_rate,
            .gradient_norm = result.gradient_norm,
            .step_ms = milliseconds_since(begin),
            .data_ms = profiler.total_ms("data"),
            .forward_ms = profiler.total_ms("forward"),
            .backward_ms = profiler.total_ms("backward"),
            .optimizer_ms = profiler.total_ms("optimizer"),
            .memory = context().allocator().account()};
  }

  /// Rates over the steps since the last report. Evaluation does not count.
  void fill_interval(StepMetrics& metrics) {
    const double seconds = (milliseconds_since(interval_start_) - evaluation_ms_) * 1e-3;
    const auto steps = static_cast<double>(interval_steps_);
    metrics.tokens_per_second = steps * static_cast<double>(tokens_per_step()) / seconds;
    const double flops =
        session_.model().training_flops(config_.data.batch_size, config_.data.sequence_length);
    metrics.matmul_fraction = steps * flops / seconds / matmul_rate_;
    interval_start_ = Clock::now();
    interval_steps_ = 0;
    evaluation_ms_ = 0.0;
  }

  float validation_loss(std::int64_t step) {
    const auto begin = Clock::now();
    const std::int64_t all =
        std::max<std::int64_t>(1, data_.val->windows() / config_.data.batch_size);
    const std::int64_t wanted = config_.train.eval_batches;
    const float loss =
        session_.evaluate(wanted > 0 ? std::min(wanted, all) : all,
                          [&](std::int64_t s, std::int64_t first, std::int64_t rows) {
                            return data_.val->load(s, first, rows, config_.data.batch_size);
                          });
    check(std::isfinite(loss),
          "step {}: the validation loss is {}; the run stops. Lower optimizer.learning_rate or "
          "lengthen optimizer.warmup_steps",
          step, loss);
    evaluation_ms_ += milliseconds_since(begin);
    return loss;
  }

  std::string save() {
    const fs::path folder = config_.train.dir / "model";
    save_pretrained(folder, session_.model(), session_.strategy().shards());
    const fs::path tokenizer = config_.data.train.parent_path() / Tokenizer::kFileName;
    if (fs::exists(tokenizer)) {
      write_file_atomically(folder / Tokenizer::kFileName, read_text_file(tokenizer));
    }
    if (!config_.train.trace.empty()) {
      write_chrome_trace(config_.train.trace.string(), {&context().profiler()});
    }
    return fmt::format("saved {}", folder.string());
  }

  Config config_;
  TrainingSession session_;
  Data data_;
  double matmul_rate_;
  Clock::time_point interval_start_;
  std::int64_t interval_steps_ = 0;
  double evaluation_ms_ = 0.0;
};

}  // namespace

void train(const Config& config) {
  check_consistent(config);
  RankContext rank({.threads = static_cast<int>(config.runtime.threads),
                    .seed = static_cast<std::uint64_t>(config.train.seed)});
  const ContextGuard guard(rank);
  Run(config).execute();
}

}  // namespace tessera
