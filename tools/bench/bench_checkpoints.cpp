// bench_checkpoints: the time of training steps while a checkpoint is written, over that without one.
//
//   bench_checkpoints --model gpt2 --batch 4 --sequence 256
//
// The baseline is the same run's own steps. Each pair is a few steps without a checkpoint, then the
// steps from the copy of the state until the checkpoint has its name. A pair's ratio is the mean time
// of a step of the second kind over that of the first; the ratio is the median over the pairs. The copy,
// for which training waits, has a line of its own and is not a part of a step.
//
// A writing thread takes time from the ranks' threads where these use every core. Checkpoints lie below
// --dir, and each replaces the one before. Its disk is a part of the result.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/command_line.h"
#include "tools/bench/report.h"
#include "tools/config/kernel_options.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/median.h"
#include "tools/measure/workload.h"
#include "tools/plan/advice.h"
#include "tools/program/command_line.h"
#include "tools/train/checkpointer.h"
#include "tools/train/gather.h"
#include "tools/train/lengths.h"
#include "tools/train/resolve.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Options {
  WorkloadOptions workload;
  int ranks = 1;
  int threads = 0;
  int pairs = 5;
  int steps = 3;
  std::string dir = "runs/bench_checkpoints";
  std::string json;
};

/// One pair, in milliseconds.
struct Pair {
  double plain_step = 0.0;
  double writing_step = 0.0;
  double copy = 0.0;
  /// From the copy until the checkpoint has its name.
  double whole = 0.0;
  int writing_steps = 0;
};

class Bench {
 public:
  Bench(const Options& options, const ResolvedConfig& run, Communicator& world)
      : options_(options),
        run_(run),
        world_(world),
        session_(run, world),
        train_({.dir = options.dir, .keep_last = 1}),
        checkpointer_(train_, world, [](std::string_view) {}) {}

  Pair pair() {
    Pair pair;
    for (int i = 0; i < options_.steps; ++i) pair.plain_step += step_ms() / options_.steps;
    const Clock::time_point begin = Clock::now();
    CheckpointTexts texts;
    if (world_.rank() == 0) texts.state = run_state_text(session_, {step_, step_}, {}, 0);
    checkpointer_.save(step_, true, tensors_to_save(session_), std::move(texts));
    pair.copy = milliseconds_since(begin);
    const fs::path complete = checkpoint_path(options_.dir, step_);
    do {
      pair.writing_step += step_ms();
      ++pair.writing_steps;
    } while (!is_complete(complete));
    pair.whole = milliseconds_since(begin);
    pair.writing_step /= pair.writing_steps;
    const std::string problem = checkpointer_.finish();
    check(problem.empty(), "no checkpoint was written: {}", problem);
    return pair;
  }

  double step_ms() {
    const Clock::time_point begin = Clock::now();
    session_.step(++step_, random_tokens(run_.config.data, session_.model().shape().vocab_size));
    checkpointer_.poll();
    communication_stream().synchronize();
    context().compute_stream().synchronize();
    return milliseconds_since(begin);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double milliseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
  /// Rank 0's answer, on every rank.
  bool is_complete(const fs::path& path) {
    return gather_numbers({fs::exists(path) ? 1 : 0}, world_)[0][0] == 1;
  }

  const Options& options_;
  const ResolvedConfig& run_;
  Communicator& world_;
  TrainingSession session_;
  const TrainConfig train_;
  Checkpointer checkpointer_;
  std::int64_t step_ = 0;
};

double median_of(const std::vector<Pair>& pairs, double (*value)(const Pair&)) {
  std::vector<double> values;
  for (const Pair& pair : pairs) values.push_back(value(pair));
  return median(values);
}

nlohmann::ordered_json report_of(const Options& options, const ResolvedConfig& run,
                                 const std::vector<Pair>& pairs) {
  nlohmann::ordered_json report = new_report("bench_checkpoints");
  const auto ratio = [](const Pair& p) { return p.writing_step / p.plain_step; };
  report.update(
      {{"model", options.workload.model},
       {"pairs", options.pairs},
       {"step_ms", median_of(pairs, [](const Pair& p) { return p.plain_step; })},
       {"writing_step_ms", median_of(pairs, [](const Pair& p) { return p.writing_step; })},
       {"copy_ms", median_of(pairs, [](const Pair& p) { return p.copy; })},
       {"checkpoint_ms", median_of(pairs, [](const Pair& p) { return p.whole; })},
       {"ratio", median_of(pairs, ratio)}});
  for (const Pair& pair : pairs) report["ratios"].push_back(ratio(pair));
  report["config"] = config_entries(run.config);
  return report;
}

void run(const Options& options, const ResolvedConfig& resolved, Communicator& world) {
  choose_kernels(resolved.config);
  if (world.rank() == 0) fs::create_directories(options.dir);
  gather_numbers({0}, world);
  Bench bench(options, resolved, world);
  bench.step_ms();  // warm-up: fills the allocator's cache
  std::vector<Pair> pairs;
  for (int i = 0; i < options.pairs; ++i) pairs.push_back(bench.pair());
  if (world.rank() != 0) return;
  const nlohmann::ordered_json report = report_of(options, resolved, pairs);
  const auto number = [&](const char* key) { return report[key].get<double>(); };
  fmt::print("{}: {}\n", options.workload.model, describe_model(resolved));
  fmt::print("{} on {} rank{}, {} x {} threads, median of {} pairs\n",
             variant_name(resolved.sharding), world.size(), world.size() == 1 ? "" : "s",
             to_string(context().device()), context().threads().size(), options.pairs);
  fmt::print("  step       {:>9.2f} ms  the baseline: no checkpoint is being written\n",
             number("step_ms"));
  fmt::print("  step       {:>9.2f} ms  while one is being written\n", number("writing_step_ms"));
  fmt::print("  ratio      {:>9.3f}\n", number("ratio"));
  fmt::print("  copy       {:>9.2f} ms  for which training waits\n", number("copy_ms"));
  fmt::print("  checkpoint {:>9.2f} ms  until it has its name\n", number("checkpoint_ms"));
  write_report(options.json, report);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  tessera::Options options;
  tessera::Command app("bench_checkpoints",
                       "Times training steps with and without a checkpoint being written");
  app.shows_defaults();
  tessera::add_workload_options(app, options.workload).required();
  app.option("--ranks", options.ranks, "Ranks, as threads of this process").positive();
  app.option("--threads", options.threads, "Threads per rank; 0: all cores, shared out")
      .not_negative();
  app.option("--pairs", options.pairs, "Timed pairs, of which the median is taken").positive();
  app.option("--steps", options.steps, "Steps without a checkpoint in a pair").positive();
  app.option("--dir", options.dir, "Folder for the checkpoints");
  app.option("--json", options.json, "Also write the figures to this file");
  return tessera::run_main(app, count, arguments, [&] {
    const tessera::ResolvedConfig resolved = tessera::resolve(tessera::with_batch_size(
        tessera::workload(options.workload.model, options.workload.overrides), options.ranks));
    tessera::check_ranks(resolved, options.ranks);
    tessera::run_ranks({.ranks = options.ranks,
                        .device = tessera::first_device(resolved.config.runtime),
                        .threads = options.threads},
                       [&](tessera::Communicator& world) {
                         tessera::with_training_advice(resolved.config, world, [&] {
                           tessera::run(options, resolved, world);
                         });
                       });
    return 0;
  });
}
