#include "tools/train/runner.h"

#include <algorithm>
#include <cmath>

#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "sharding/plan/placement.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/data/manifest.h"
#include "tools/program/stop.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string count_of(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// The tokens that `path` names, the value of `key`; no loader for an empty path.
std::optional<TokenLoader> open_tokens(std::string_view key, const fs::path& path,
                                       const ResolvedConfig& run, SampleOrder order) {
  if (path.empty()) return std::nullopt;
  std::optional<TokenLoader> loader;
  check_key(run.config, key, [&] {
    loader.emplace(TokenCorpus::open(path, shape_of(run.model).vocab_size),
                   run.config.data.sequence_length, order,
                   static_cast<std::uint64_t>(run.config.train.seed), run.document_token);
  });
  return loader;
}

/// The tokenizer of the data or of the model that training starts from; null if they have none.
std::unique_ptr<Tokenizer> load_tokenizer(const Config& config) {
  std::vector<fs::path> folders = {data_folder_of(config.data.train)};
  if (!config.model.init_from.empty()) folders.push_back(model_folder(config.model.init_from));
  for (const fs::path& folder : folders) {
    if (!folder.empty() && Tokenizer::exists(folder)) return Tokenizer::load(folder);
  }
  return nullptr;
}

/// Batches of a token file: every target is valid.
BatchSource batches_of(const TokenLoader& loader, std::int64_t first_step,
                       std::int64_t batch_size) {
  return {
      [&loader, first_step, batch_size](std::int64_t step, std::int64_t first, std::int64_t rows) {
        return loader.load(step - first_step, first, rows, batch_size);
      },
      [length = loader.sequence_length()](std::int64_t, std::int64_t, std::int64_t rows) {
        return rows * length;
      }};
}

}  // namespace

RunData::RunData(const ResolvedConfig& run)
    : train(open_tokens("data.train", run.config.data.train, run, SampleOrder::shuffled).value()),
      val(open_tokens("data.val", run.config.data.val, run, SampleOrder::sequential)),
      tokenizer(load_tokenizer(run.config)) {}

Runner::Runner(const ResolvedConfig& run, const RunData& data, Communicator& world)
    : run_(run),
      world_(world),
      data_(data),
      session_(run, world),
      rates_(rates_of(run, session_, world)),
      tracer_(run_.config.train, world),  // its barrier: every rank has read its weights
      meter_(world) {
  if (is_first()) open_output();
}

void Runner::open_output() {
  const TrainConfig& train = config_.train;
  if (!train.trace.empty()) check_output_file(train.trace);
  output_.emplace(train);
}

void Runner::execute() {
  if (output_) {
    write_file_atomically(config_.train.dir / "config.yaml", to_yaml(as_run()));
    output_->reporter.introduce(introduction());
  }
  meter_.start();
  for (std::int64_t step = 1; step <= config_.train.steps; ++step) {
    train_step(step);
    if (step < config_.train.steps) raise_if_stopped(step);
  }
  save();
}

Config Runner::as_run() const {
  Config config = config_;
  config.runtime.ranks = world_.size();
  config.runtime.threads = context().threads().size();
  config.runtime.device = first_device(config.runtime);
  if (config.sharding.strategy == StrategyKind::hsdp) {
    const Machine machine = {.ranks = world_.size(), .ranks_per_node = world_.ranks_per_node()};
    config.sharding.shard_size = mesh_of(run_.sharding, machine).size_along({"shard"});
  }
  return config;
}

std::vector<std::string> Runner::introduction() const {
  const RankContext& here = context();
  const std::int64_t tokens = config_.train.steps * tokens_per_step(config_.data);
  const std::int64_t epoch = data_.train.windows() * config_.data.sequence_length;
  std::vector<std::string> lines;
  lines.push_back(config_.train.dir.string());
  if (const fs::path& earlier = output_->folder.earlier(); !earlier.empty()) {
    lines.push_back(fmt::format("  earlier run moved to {}", earlier.string()));
  }
  lines.push_back(fmt::format("  model    {}", describe_model(run_)));
  lines.push_back(fmt::format("  data     {}: {} steps of {} tokens, {:.2f} epochs",
                              config_.data.train.string(), config_.train.steps,
                              tokens_per_step(config_.data),
                              static_cast<double>(tokens) / static_cast<double>(epoch)));
  lines.push_back(fmt::format("  ranks    {} on {}, {}, {} each, {}", variant_name(run_.sharding),
                              count_of(world_.size(), "rank"), to_string(here.device()),
                              count_of(context().threads().size(), "thread"),
                              name_of(run_.sharding.compute_dtype)));
  if (rates_.matmul) {
    lines.push_back(fmt::format("  matmul   {:.0f} GFLOP/s, plain products of the model's shapes",
                                *rates_.matmul * 1e-9));
  }
  if (rates_.peak) {
    lines.push_back(fmt::format("  peak     {:.0f} TFLOP/s by data sheet", *rates_.peak * 1e-12));
  }
  const TransformerShape shape = shape_of(run_.model);
  const bool hides_keys =
      run_.document_token ||
      (shape.chunks.layers > 0 && config_.data.sequence_length > shape.chunks.tokens);
  if (config_.kernels.attention == AttentionBackend::cudnn && hides_keys) {
    lines.push_back(
        "  note     cuDNN's attention knows no documents and chunks: there tessera's kernels run");
  }
  return lines;
}

bool Runner::is_due(std::int64_t step, std::int64_t every) const {
  return every > 0 && (step % every == 0 || step == 1 || step == config_.train.steps);
}

void Runner::train_step(std::int64_t step) {
  tracer_.start_step(step);
  const Clock::time_point begin = Clock::now();
  const StepResult result =
      session_.step(step, batches_of(data_.train, 1, config_.data.batch_size));
  const double step_ms = 1e3 * seconds_since(begin);
  tracer_.stop();
  meter_.add_step(result);
  const bool evaluates = is_due(step, config_.train.eval_every) && data_.val;
  if (evaluates || is_due(step, config_.train.log_every)) report(step, result, evaluates);
  if (output_) output_->reporter.update(step, result.loss, step_ms);
}

void Runner::report(std::int64_t step, const StepResult& result, bool evaluates) {
  meter_.stop();
  StepMetrics metrics = {.step = step,
                         .loss = result.loss,
                         .learning_rate = result.learning_rate,
                         .gradient_norm = result.gradient_norm,
                         .router_loss = result.router_loss,
                         .expert_load = result.loads.imbalance,
                         .idle_experts = result.loads.idle,
                         .tokens = step * tokens_per_step(config_.data)};
  const DataConfig& data = config_.data;
  const double steps_per_second = static_cast<double>(meter_.steps()) / meter_.seconds();
  const double flops = steps_per_second * training_flops(session_.model().shape(), data.batch_size,
                                                         data.sequence_length);
  metrics.tokens_per_second = steps_per_second * static_cast<double>(tokens_per_step(data));
  metrics.matmul_fraction = share_of_rate(flops, rates_.matmul);
  if (rates_.peak) metrics.mfu = flops / *rates_.peak;
  if (evaluates) metrics.val_loss = validation_loss(step);
  meter_.fill(metrics);
  if (output_) {
    output_->folder.check_in_place();
    output_->reporter.report(metrics);
  }
  meter_.start();
}

float Runner::validation_loss(std::int64_t step) {
  const std::int64_t all = data_.val->windows();
  const std::int64_t wanted = config_.train.eval_batches;
  // Division: the product of a large number of batches and their size may overflow.
  const bool whole = wanted == 0 || wanted > all / config_.data.batch_size;
  const std::int64_t rows = whole ? all : wanted * config_.data.batch_size;
  const float loss = session_.evaluate(rows, batches_of(*data_.val, 0, rows));
  check(std::isfinite(loss),
        "step {}: the validation loss is {}; the run stops. Lower optimizer.learning_rate or "
        "lengthen optimizer.warmup_steps",
        step, loss);
  return loss;
}

void Runner::raise_if_stopped(std::int64_t step) const {
  const int signal = stop_signal();
  check(signal == 0,
        "stopped by {} after step {} of {}; no model was written, and {} holds the metrics up to "
        "here",
        signal_name(signal), step, config_.train.steps, config_.train.dir.string());
}

/// The model's files are written to a folder of another name, which is renamed when it is complete.
/// The trace comes last.
void Runner::save() {
  if (output_) output_->folder.check_in_place();
  const fs::path unfinished = RunFolder::unfinished_model(config_.train.dir);
  save_pretrained(unfinished, session_.model(), session_.strategy());
  if (output_) {
    if (data_.tokenizer) data_.tokenizer->save(unfinished);
    output_->folder.finish_model();
  }
  const std::string problem = tracer_.write();
  if (!output_) return;
  Reporter& reporter = output_->reporter;
  reporter.summarize();
  reporter.log(fmt::format("saved {}", RunFolder::model(config_.train.dir).string()));
  if (!problem.empty()) reporter.log(fmt::format("warning: no trace: {}", problem));
  reporter.check_output();
}

}  // namespace tessera
