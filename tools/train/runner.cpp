#include "tools/train/runner.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/hugging_face.h"
#include "models/peft.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "sharding/checkpoint/reader.h"
#include "sharding/plan/placement.h"
#include "tools/config/data_sources.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/program/stop.h"
#include "tools/train/algorithms.h"
#include "tools/train/continuing.h"
#include "tools/train/description.h"
#include "tools/train/gather.h"
#include "tools/train/optimizer.h"
#include "tools/train/resume.h"
#include "tools/watch/nonfinite.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

/// More would hide a run that has diverged.
constexpr int kMostSkips = 10;
constexpr int kMostRollbacks = 3;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

std::string count_of(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// The files of a tokenizer by their names. They are written to `folder`, which disappears again.
std::map<std::string, std::string> files_of(const Tokenizer& tokenizer, const fs::path& folder) {
  fs::create_directory(folder);
  tokenizer.save(folder);
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_text_file(entry.path());
  }
  fs::remove_all(folder);
  return files;
}

}  // namespace

Runner::Runner(const ResolvedConfig& run, const RunData& data, Communicator& world,
               std::string restarted)
    : run_(run),
      world_(world),
      data_(data),
      restarted_(std::move(restarted)),
      batches_(data.train, batch_sizes(config_)),
      session_(run, world),
      rates_(rates_of(run, session_, world)),
      profile_(run_.config.train, world),  // its barrier: every rank has read its weights
      meter_(world),
      checkpointer_(config_.train, world, [this](std::string_view line) { log(line); }),
      spikes_(config_.train.keep_spikes) {
  start_output();
}

void Runner::start_output() {
  const TrainConfig& train = config_.train;
  std::vector<CheckpointFolder> candidates;
  if (is_first()) {
    if (train.metrics_port > 0) {
      check_with_place(config_, [&] { server_.emplace(static_cast<int>(train.metrics_port)); });
    }
    check_key(config_, "train.dir", [&] { folder_.emplace(train.dir); });
    candidates = resumable_checkpoints(config_);
  }
  resumed_ = restore_newest(std::move(candidates));
  const bool continues = is_first() && !resumed_.empty() &&
                         fs::equivalent(fs::absolute(resumed_).parent_path(), train.dir);
  const bool complete =
      continues && position_.step == train.steps && fs::exists(RunFolder::model(train.dir));
  nothing_to_do_ = gather_numbers({complete ? 1 : 0}, world_)[0][0] == 1;
  if (!is_first() || nothing_to_do_) return;
  if (config_.adapter.rank > 0) base_ = weights_fingerprint(config_.model.init_from);
  continues ? folder_->continue_after(position_.step) : folder_->start_new();
  if (data_.tokenizer) {
    tokenizer_files_ = files_of(*data_.tokenizer, RunFolder::unfinished_model(train.dir));
  }
  if (!data_.stop.empty()) {
    const fs::path& base = config_.model.init_from;
    tokenizer_files_[kGenerationConfig] =
        generation_config(base.empty() ? base : model_folder(base), data_.stop);
  }
  reporter_.emplace(train, Reporter::Clock::now(), continues ? position_.step : 0,
                    server_ ? &*server_ : nullptr);
  checkpointer_.on_saved([this](std::int64_t step, const fs::path& path, double ms) {
    reporter_->event({"checkpoint", step, {{"path", path.string()}, {"ms", ms}}});
  });
}

void Runner::log(std::string_view line) {
  if (reporter_) return reporter_->log(line);
  notes_.emplace_back(line);
}

fs::path Runner::restore_newest(std::vector<CheckpointFolder> candidates) {
  const std::size_t all = candidates.size();
  std::string problem;
  for (;;) {
    check(!candidates.empty() || problem.empty(), "none of {} can be loaded: {}",
          count_of(static_cast<std::int64_t>(all), "checkpoint"), problem);
    const fs::path path = text_of_first_rank(
        candidates.empty() ? std::string() : candidates.back().path.string(), world_);
    if (path.empty()) return path;
    const Restored restored = restore(session_, path);
    const auto problems = gather_texts(restored.problem, world_);
    const auto good = gather_numbers({restored.problem.empty() ? 1 : 0}, world_);
    if (std::all_of(good.begin(), good.end(), [](const auto& rank) { return rank[0] == 1; })) {
      check(restored.sequences == data_.train.samples(),
            "data.train {} has {} sequences of {} tokens; {} was saved with {}",
            to_string(config_.data.train), data_.train.samples(), config_.data.sequence_length,
            path.string(), restored.sequences);
      position_ = restored.position;
      restore_algorithms(path);
      return path;
    }
    if (!is_first()) continue;
    problem = *std::find_if(problems.begin(), problems.end(),
                            [](const std::string& text) { return !text.empty(); });
    candidates.pop_back();
    log(fmt::format("warning: {}; the checkpoint before is taken", problem));
  }
}

void Runner::restore_algorithms(const fs::path& checkpoint) {
  if (config_.kernels.cublaslt != AlgorithmChoice::measured) return;
  CheckpointReader reader(checkpoint);
  if (!reader.manifest().files.contains(kAlgorithmsFile)) return;
  const std::string problem = use_algorithms(reader.text(kAlgorithmsFile), world_.rank());
  if (problem.empty() || !is_first()) return;
  log(fmt::format("warning: {}: {}; they are measured again, and the bits may differ",
                  checkpoint.string(), problem));
}

void Runner::execute() {
  if (nothing_to_do_) {
    if (is_first()) {
      fmt::print(
          "{} is complete: {} of {} steps. For more, raise train.steps; to start again, set "
          "train.resume=never\n",
          config_.train.dir.string(), position_.step, config_.train.steps);
    }
    return;
  }
  if (reporter_) {
    write_file_atomically(config_.train.dir / kConfigFile, to_yaml(as_run()));
    reporter_->introduce(introduction());
    event("start", describe_run(run_, session_, world_));
    if (!restarted_.empty()) event("restart", {{"reason", restarted_}});
    if (!resumed_.empty()) {
      event("resume", {{"path", resumed_.string()}, {"batches", position_.batches}});
    }
  }
  meter_.start();
  while (position_.step < config_.train.steps && !stopped_) train_step();
  write_profile(/*run_has_ended=*/true);
  const std::string problem = checkpointer_.finish();
  if (position_.step == config_.train.steps) return save();
  check(problem.empty(), "stopped after step {} of {}, and no checkpoint was written: {}",
        position_.step, config_.train.steps, problem);
  report_stop();
}

Config Runner::as_run() const {
  Config config = config_;
  config.runtime.ranks = world_.size();
  config.runtime.threads = context().threads().size();
  config.runtime.device = first_device(config.runtime);
  if (config.sharding.strategy == StrategyKind::hsdp) {
    const Machine machine = {.ranks = world_.size(), .ranks_per_node = world_.ranks_per_node()};
    config.sharding.shard_size = replica_size(mesh_of(run_.sharding, machine));
  }
  return config;
}

void Runner::event(std::string_view name, nlohmann::ordered_json fields) {
  if (reporter_) reporter_->event({name, position_.step, std::move(fields)});
}

std::vector<std::string> Runner::introduction() const {
  const RankContext& here = context();
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}, {}", config_.train.dir.string(), date_and_clock_now()));
  if (const fs::path& earlier = folder_->earlier(); !earlier.empty()) {
    lines.push_back(fmt::format("  earlier run moved to {}", earlier.string()));
  }
  if (!restarted_.empty()) lines.push_back("  launch   " + restarted_);
  for (const std::string& note : notes_) lines.push_back("  " + note);
  if (!resumed_.empty()) {
    lines.push_back(
        fmt::format("  resume   after step {} of {}", position_.step, resumed_.string()));
  }
  lines.push_back(fmt::format("  model    {}", describe_model(run_)));
  lines.push_back(fmt::format("  data     {}", describe_data(run_, data_)));
  lines.push_back(fmt::format("  ranks    {} on {}, {}, {} each, {}", variant_name(run_.sharding),
                              count_of(world_.size(), "rank"), to_string(here.device()),
                              count_of(context().threads().size(), "thread"),
                              name_of(config_.runtime.compute_dtype)));
  if (rates_.matmul) {
    lines.push_back(fmt::format("  matmul   {:.0f} GFLOP/s, plain products of the model's shapes",
                                *rates_.matmul * 1e-9));
  }
  if (rates_.peak) {
    lines.push_back(fmt::format("  peak     {:.0f} TFLOP/s by data sheet", *rates_.peak * 1e-12));
  }
  for (const std::string& note : speed_notes(run_, here.device())) {
    lines.push_back("  note     " + note);
  }
  return lines;
}

bool Runner::is_due(std::int64_t step, std::int64_t every) const {
  return every > 0 && (step % every == 0 || step == 1 || step == config_.train.steps);
}

void Runner::train_step() {
  const std::int64_t step = position_.step + 1;
  profile_.start_step(step);
  const SteadyClock::time_point begin = SteadyClock::now();
  const StepResult result =
      session_.step(step, batches_of(batches_, step - position_.batches), stop_signal() != 0);
  const double step_ms = 1e3 * seconds_since(begin);
  profile_.end_step(step);
  position_ = {.step = step, .batches = position_.batches + 1};
  stopped_ = result.stop;
  checkpointer_.poll();
  keep_spike(result);
  if (reporter_ && !result.watch.empty()) reporter_->watch(step, json_of(result.watch));
  if (result.diverged) answer_divergence(result);
  if (position_.step != step) return;  // rolled back
  if (!result.diverged) skips_ = 0;
  if (!result.finite) {
    event("skip", {{"reason", result.diverged ? "not finite" : "loss scale"},
                   {"loss", result.loss},
                   {"gradient_norm", result.gradient_norm}});
  }
  if (result.cut.tensors > 0) {
    event("fp8_cut", {{"tensors", result.cut.tensors},
                      {"tensor", result.cut.name},
                      {"ratio", shortest(result.cut.ratio)}});
  }
  meter_.add_step(result);
  // Before the evaluation, which may fail.
  if (checkpointer_.is_due(step) || (stopped_ && step < config_.train.steps)) {
    save_checkpoint(result);
  }
  report(step, result);
  if (reporter_) reporter_->update(step, result.loss, step_ms);
}

void Runner::keep_spike(const StepResult& result) {
  const std::optional<double> mean = spikes_.spike(result.loss);
  if (!mean || !reporter_) return;
  const fs::path path = kept_path(config_.train.dir, position_.step);
  const KeptStep kept = {.step = position_.step,
                         .batch = position_.batches - 1,
                         .loss = result.loss,
                         .gradient_norm = result.gradient_norm,
                         .mean_loss = *mean};
  const std::string problem =
      write_kept(path, kept, data_.train, batches_.sizes(), data_.tokenizer.get());
  if (!problem.empty()) {
    return log(fmt::format("warning: step {} is not kept: {}", position_.step, problem));
  }
  event("spike", {{"loss", result.loss}, {"mean_loss", *mean}, {"path", path.string()}});
  log(fmt::format("step {}: the loss is {:.4f} after a mean of {:.4f}; its batch is kept in {}",
                  position_.step, result.loss, *mean, path.string()));
}

void Runner::answer_divergence(const StepResult& result) {
  const std::string problem = fmt::format("step {}: the loss is {} and the gradient norm {}",
                                          position_.step, result.loss, result.gradient_norm);
  if (config_.train.on_nonfinite == OnNonfinite::rollback) return roll_back(problem);
  if (config_.train.on_nonfinite == OnNonfinite::explain) {
    const BatchSource source = batches_of(batches_, position_.step - position_.batches + 1);
    fail("{}; {}. The run stops before the parameters are touched", problem,
         explain_nonfinite(session_, world_, position_.step, source));
  }
  ++skips_;
  check(skips_ <= kMostSkips, "{}; {} steps in a row were skipped, and the run stops", problem,
        kMostSkips);
  if (is_first()) log(fmt::format("warning: {}; the step is skipped", problem));
}

void Runner::roll_back(const std::string& problem) {
  checkpointer_.finish();
  const std::int64_t batches = position_.batches;
  const fs::path path = restore_newest(is_first() ? checkpoints_in(config_.train.dir)
                                                  : std::vector<CheckpointFolder>());
  check(!path.empty(), "{}; there is no checkpoint to go back to, and the run stops", problem);
  rollbacks_ = position_.step == rollback_step_ ? rollbacks_ + 1 : 1;
  rollback_step_ = position_.step;
  check(rollbacks_ <= kMostRollbacks, "{}; the run went back to step {} {} times, and stops",
        problem, rollback_step_, kMostRollbacks);
  position_.batches = batches;
  event("rollback", {{"to", rollback_step_}, {"batches", batches}});
  if (is_first()) {
    log(fmt::format("warning: {}; back to step {}, on with batch {}", problem, rollback_step_,
                    batches + 1));
  }
}

void Runner::save_checkpoint(const StepResult& result) {
  CheckpointTexts texts;
  const bool measured = config_.kernels.cublaslt == AlgorithmChoice::measured;
  const std::string algorithms = measured ? algorithms_text(world_) : "";
  if (is_first()) {
    folder_->check_in_place();
    texts = {.state = run_state_text(session_, position_, result, data_.train.samples(), base_),
             .files = tokenizer_files_};
    texts.files[kConfigFile] = to_yaml(as_run());
    if (measured) texts.files[kAlgorithmsFile] = algorithms;
    texts.files[kModelFile] = session_.model().config().dump(2) + "\n";
  }
  checkpointer_.save(position_.step, result.finite, tensors_to_save(session_), std::move(texts));
}

void Runner::report(std::int64_t step, const StepResult& result) {
  const TrainConfig& train = config_.train;
  const bool evaluates = !data_.validation.empty() && is_due(step, train.eval_every);
  const bool samples = data_.samples && is_due(step, train.sample_every);
  const bool answers =
      !data_.questions.empty() &&
      (step == train.steps || (train.hellaswag_every > 0 && step % train.hellaswag_every == 0));
  if (!evaluates && !samples && !answers && !is_due(step, train.log_every)) return;
  meter_.stop();
  StepMetrics metrics = {.step = step,
                         .loss = result.loss,
                         .preference = result.preference,
                         .learning_rate = result.learning_rate,
                         .group_learning_rates = group_learning_rates(config_, step),
                         .gradient_norm = result.gradient_norm,
                         .router_loss = result.router_loss,
                         .expert_load = result.loads.imbalance,
                         .idle_experts = result.loads.idle,
                         .tokens = batches_.sizes().first_row(step) * config_.data.sequence_length};
  const std::int64_t length = config_.data.sequence_length;
  const std::int64_t rows =
      batches_.sizes().first_row(step) - batches_.sizes().first_row(step - meter_.steps());
  const double flops = training_flops(session_.model(), rows, length) / meter_.seconds();
  metrics.tokens_per_second = static_cast<double>(rows * length) / meter_.seconds();
  metrics.matmul_fraction = share_of_rate(flops, rates_.matmul);
  if (rates_.peak) metrics.mfu = flops / *rates_.peak;
  if (evaluates) measure_validation(metrics, /*ema=*/false);
  if (evaluates && train.evaluate_ema) measure_validation(metrics, /*ema=*/true);
  const std::int64_t right = answers ? right_answers_of_all() : 0;
  const std::size_t questions = data_.questions.size();
  if (answers) metrics.hellaswag = static_cast<double>(right) / static_cast<double>(questions);
  meter_.fill(metrics);
  write_profile(/*run_has_ended=*/false);
  if (reporter_) {
    folder_->check_in_place();
    reporter_->report(metrics);
    const std::string warning = data_warning(metrics);
    if (!warning.empty() && !warned_of_data_) log("warning: " + warning);
    warned_of_data_ |= !warning.empty();
    if (answers) {
      log(fmt::format("hellaswag {:.4f}: {} of {} questions", *metrics.hellaswag, right,
                      questions));
    }
  }
  if (samples) write_samples(step);
  meter_.start();
}

void Runner::write_profile(bool run_has_ended) {
  const std::string problem = profile_.write(run_has_ended);
  if (is_first() && !problem.empty()) log(fmt::format("warning: no profile: {}", problem));
}

std::int64_t Runner::rows_to_measure(const TokenLoader& loader) const {
  const std::int64_t all = loader.samples(), wanted = config_.train.eval_batches;
  // Division: the product of a large number of batches and their size may overflow.
  const bool whole = wanted == 0 || wanted > all / config_.data.batch_size;
  return whole ? all : wanted * config_.data.batch_size;
}

void Runner::measure_validation(StepMetrics& metrics, bool ema) {
  const SteadyClock::time_point begin = SteadyClock::now();
  std::int64_t all_rows = 0, all_terms = 0;
  double sum = 0.0;
  PreferenceMeans pairs;
  for (const auto& [name, loader] : data_.validation) {
    const std::int64_t rows = rows_to_measure(loader);
    const std::int64_t terms = loader.loss_terms(0, 0, rows, rows);
    const BatchSource batches = batches_of(loader, 0, rows);
    const ValidationLoss evaluation =
        ema ? ValidationLoss{.loss = session_.evaluate_ema(rows, batches)}
            : session_.measure(rows, batches);
    const float loss = evaluation.loss;
    check(std::isfinite(loss),
          "step {}: the validation loss{} is {}; the run stops. Lower optimizer.learning_rate or "
          "lengthen optimizer.warmup_steps",
          metrics.step, name.empty() ? "" : " of " + name, loss);
    if (!name.empty() && !ema) metrics.val_losses.emplace_back(name, loss);
    const auto weight = static_cast<double>(terms);
    sum += static_cast<double>(loss) * weight;
    all_terms += terms;
    if (evaluation.preference) {
      pairs.accuracy += evaluation.preference->accuracy * weight;
      pairs.chosen_reward += evaluation.preference->chosen_reward * weight;
      pairs.rejected_reward += evaluation.preference->rejected_reward * weight;
    }
    all_rows += rows;
  }
  const auto all = static_cast<double>(all_terms);
  if (!ema && compares_pairs(config_.train.objective)) {
    metrics.val_preference = {.accuracy = pairs.accuracy / all,
                              .chosen_reward = pairs.chosen_reward / all,
                              .rejected_reward = pairs.rejected_reward / all};
  }
  const auto mean = static_cast<float>(sum / all);
  (ema ? metrics.val_loss_ema : metrics.val_loss) = mean;
  event("eval", {{ema ? "val_loss_ema" : "val_loss", shortest(mean)},
                 {"sequences", all_rows},
                 {"ms", 1e3 * seconds_since(begin)}});
}

std::int64_t Runner::right_answers_of_all() {
  const SteadyClock::time_point begin = SteadyClock::now();
  const std::int64_t right = session_.right_answers(data_.questions);
  event("hellaswag", {{"right", right},
                      {"questions", data_.questions.size()},
                      {"ms", 1e3 * seconds_since(begin)}});
  return right;
}

void Runner::write_samples(std::int64_t step) {
  const auto rounding = session_.evaluation_scope();
  const std::vector<ContinuedText> samples = data_.samples->of(session_.model());
  if (!reporter_) return;
  for (std::size_t i = 0; i < samples.size(); ++i) reporter_->sample(step, i + 1, samples[i]);
}

void Runner::report_stop() {
  if (!reporter_) return;
  const int signal = stop_signal();  // 0: another rank was asked
  const std::string name = signal == 0 ? "" : signal_name(signal);
  event("stop", {{"signal", name}});
  log(fmt::format("stopped{} after step {} of {}; the same command continues, or",
                  name.empty() ? "" : " by " + name, position_.step, config_.train.steps));
  log("  " + command_to_continue(config_, world_.size(), find_launch()));
}

/// The model's files are written to a folder of another name, which is renamed when it is complete.
void Runner::save() {
  if (folder_) folder_->check_in_place();
  const fs::path unfinished = RunFolder::unfinished_model(config_.train.dir);
  if (config_.adapter.rank > 0) {
    save_adapter(unfinished, session_.model(), config_.adapter, config_.model.init_from,
                 session_.strategy());
  } else {
    save_pretrained(unfinished, session_.model(), session_.strategy());
  }
  if (folder_) {
    for (const auto& [name, text] : tokenizer_files_)
      write_file_atomically(unfinished / name, text);
    folder_->finish_model();
  }
  if (!reporter_) return;
  Reporter& reporter = *reporter_;
  reporter.summarize();
  reporter.log(fmt::format("saved {}", RunFolder::model(config_.train.dir).string()));
  event("end", {{"path", RunFolder::model(config_.train.dir).string()}});
  reporter.check_output();
}

}  // namespace tessera
