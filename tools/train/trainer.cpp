#include "tools/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/attention/backend.h"
#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/world.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/data/loader.h"
#include "tools/data/manifest.h"
#include "tools/train/gather_texts.h"
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

/// Checks of values together that only training needs.
void check_training(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  check_with_place(config, [&] {
    check(!config.data.train.empty(),
          "data.train is not set: name a token file made by 'tessera prepare'");
    check(!config.train.dir.empty(), "train.dir is empty: name a folder for the run");
    check(optimizer.warmup_steps <= config.train.steps,
          "optimizer.warmup_steps {} is more than train.steps {}", optimizer.warmup_steps,
          config.train.steps);
    check(optimizer.schedule != ScheduleKind::warmup_stable_decay ||
              optimizer.warmup_steps + optimizer.decay_steps <= config.train.steps,
          "optimizer.warmup_steps {} and optimizer.decay_steps {} are together more than "
          "train.steps {}",
          optimizer.warmup_steps, optimizer.decay_steps, config.train.steps);
  });
}

/// The training and validation files, opened and checked against the model.
struct Data {
  Data(const Config& config, std::int64_t vocab_size)
      : train(open_verified(config.data.train, vocab_size), config.data.sequence_length,
              SampleOrder::shuffled, static_cast<std::uint64_t>(config.train.seed)) {
    if (!config.data.val.empty()) {
      val.emplace(open_verified(config.data.val, vocab_size), config.data.sequence_length,
                  SampleOrder::sequential);
    }
  }

  TokenLoader train;
  std::optional<TokenLoader> val;
};

/// What the first rank writes and prints as the run goes.
struct Report {
  explicit Report(const TrainConfig& config)
      : metrics(config.dir), progress(config.progress, config.steps) {}

  MetricsFile metrics;
  Progress progress;
};

/// One rank's run.
class Run {
 public:
  Run(const ResolvedConfig& run, Communicator& world)
      : run_(run),
        world_(world),
        session_(run, world),
        data_(run.config, shape_of(run.model).vocab_size) {
    meet();  // between these two the machine is the yardstick's
    if (is_first()) measure_yardsticks();
    meet();
    together_ = Clock::now();
    context().allocator().trim();
    context().allocator().reset_peaks();  // the yardstick's memory is not the run's
  }

  void execute() {
    if (is_first()) {
      make_writable_directory(config_.train.dir);
      write_file_atomically(config_.train.dir / "config.yaml", to_yaml(as_run()));
      report_.emplace(config_.train);
      report_->progress.log(introduction());
    }
    start_interval();
    for (std::int64_t step = 1; step <= config_.train.steps; ++step) {
      StepMetrics metrics = train_step(step);
      const bool evaluates = is_due(step, config_.train.eval_every) && data_.val;
      if (evaluates || is_due(step, config_.train.log_every)) {
        fill_interval(metrics);
        if (evaluates) metrics.val_loss = validation_loss(step);
        if (report_) {
          report_->metrics.write(metrics);
          report_->progress.log(log_line(metrics, config_.train.steps));
        }
        start_interval();
      }
      if (report_) report_->progress.update(step, metrics.loss);
    }
    save();
  }

 private:
  bool is_first() const { return world_.rank() == 0; }
  /// Returns when all ranks have come.
  void meet() const { world_.barrier(communication_stream()).synchronize(); }
  /// The configuration with the ranks and threads of this run.
  Config as_run() const {
    Config config = config_;
    config.runtime.ranks = world_.size();
    config.runtime.threads = context().threads().size();
    config.runtime.device = context().device();
    return config;
  }
  std::int64_t tokens_per_step() const { return tessera::tokens_per_step(config_.data); }
  /// Every so many steps, and after the first and the last; never if `every` is 0.
  bool is_due(std::int64_t step, std::int64_t every) const {
    return every > 0 && (step % every == 0 || step == 1 || step == config_.train.steps);
  }

  /// On the CPU on the threads of all ranks, with the shapes that all ranks compute at a time; on a
  /// GPU with one rank's shapes, times the number of GPUs.
  void measure_yardsticks() {
    const Device& device = context().device();
    const DType dtype = run_.sharding.compute_dtype;
    const int gpus = gpus_of(device, world_.size());
    const int together = gpus > 0 ? 1 : world_.size();
    const std::int64_t tokens =
        session_.rows_per_micro_batch() * together * config_.data.sequence_length;
    const int threads = std::min(available_threads(), context().threads().size() * world_.size());
    matmul_rate_ =
        std::max(gpus, 1) * matmul_rate(training_matmuls(session_.model().shape(), tokens), dtype,
                                        threads, /*repeats=*/1);
    peak_rate_ = peak_matmul_rate(device, world_.size(), dtype);
  }

  std::string introduction() const {
    const RankContext& here = context();
    const std::string ranks =
        world_.size() == 1 ? "" : fmt::format("{} ranks, each with ", world_.size());
    const std::string peak =
        peak_rate_ ? fmt::format(" of at most {:.0f}", *peak_rate_ * 1e-9) : "";
    const std::string rate =
        fmt::format("; matmul rate {:.0f} GFLOP/s{}", matmul_rate_ * 1e-9, peak);
    return fmt::format("{}: {}, {} on {} with {}{} threads; {} tokens a step{}",
                       config_.train.dir.string(), describe_model(run_),
                       variant_name(run_.sharding), to_string(here.device()), ranks,
                       context().threads().size(), tokens_per_step(), rate);
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
    ++interval_.steps;
    return {.step = step,
            .loss = result.loss,
            .learning_rate = result.learning_rate,
            .gradient_norm = result.gradient_norm,
            .step_ms = milliseconds_since(begin),
            .data_ms = profiler.total_ms("data"),
            .forward_ms = profiler.total_ms("forward"),
            .backward_ms = profiler.total_ms("backward"),
            .optimizer_ms = profiler.total_ms("optimizer"),
            .exposed_communication_ms = profiler.total_ms("exposed communication"),
            .memory = context().allocator().account()};
  }

  void start_interval() {
    interval_ = {.start = Clock::now(),
                 .communication_ms = world_.busy_ms(),
                 .bytes_sent = world_.bytes_sent()};
  }

  /// Rates over the steps since the last report, to the end of the last one's communication.
  void fill_interval(StepMetrics& metrics) {
    communication_stream().synchronize();
    context().compute_stream().synchronize();
    const double seconds = milliseconds_since(interval_.start) * 1e-3;
    const auto steps = static_cast<double>(interval_.steps);
    metrics.tokens_per_second = steps * static_cast<double>(tokens_per_step()) / seconds;
    const double flops = training_flops(session_.model().shape(), config_.data.batch_size,
                                        config_.data.sequence_length);
    if (matmul_rate_ > 0.0) metrics.matmul_fraction = steps * flops / seconds / matmul_rate_;
    if (peak_rate_) metrics.mfu = steps * flops / seconds / *peak_rate_;
    metrics.communication_ms = (world_.busy_ms() - interval_.communication_ms) / steps;
    metrics.bytes_sent = static_cast<double>(world_.bytes_sent() - interval_.bytes_sent) / steps;
  }

  float validation_loss(std::int64_t step) {
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
    return loss;
  }

  void save() {
    const fs::path folder = config_.train.dir / "model";
    save_pretrained(folder, session_.model(), session_.strategy());
    if (!config_.train.trace.empty()) write_trace();
    if (!is_first()) return;
    const fs::path tokenizer = config_.data.train.parent_path() / Tokenizer::kFileName;
    if (fs::exists(tokenizer)) {
      write_file_atomically(folder / Tokenizer::kFileName, read_text_file(tokenizer));
    }
    report_->progress.log(fmt::format("saved {}", folder.string()));
  }

  /// Every rank counts from the moment at which all had met, whatever its clock shows.
  void write_trace() {
    const auto events = gather_texts(trace_events(context().profiler(), together_), world_);
    if (is_first()) write_chrome_trace(config_.train.trace.string(), events);
  }

  struct Interval {
    Clock::time_point start;
    std::int64_t steps = 0;
    double communication_ms = 0.0;
    std::int64_t bytes_sent = 0;
  };

  ResolvedConfig run_;
  const Config& config_ = run_.config;
  Communicator& world_;
  TrainingSession session_;
  Data data_;
  Clock::time_point together_;
  /// FLOP/s of all ranks' devices, measured and by data sheet; on the first rank.
  double matmul_rate_ = 0.0;
  std::optional<double> peak_rate_;
  /// On the first rank.
  std::optional<Report> report_;
  Interval interval_;
};

}  // namespace

void train(const Config& config) {
  const WorldOptions world_options = {
      .ranks = static_cast<int>(config.runtime.ranks),
      .device = first_device(config.runtime),
      .threads = static_cast<int>(config.runtime.threads),
      .seed = static_cast<std::uint64_t>(config.train.seed),
      .deadline = std::chrono::seconds(config.sharding.timeout),
      .communicator = config.sharding.communicator,
      .deterministic = config.sharding.deterministic,
  };
  std::optional<ResolvedConfig> run;
  check_once([&] {
    check_training(config);
    run = resolve(config);
    check_ranks(*run, planned_ranks(world_options));
  });
  run_world(world_options, [&](Communicator& world) {
    set_attention_backend(config.kernels.attention);
    Run(*run, world).execute();
  });
}

}  // namespace tessera
