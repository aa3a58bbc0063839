#include "tools/replay/replayed_rank.h"

#include <algorithm>
#include <optional>

#include "runtime/check.h"
#include "sharding/checkpoint/reader.h"
#include "sharding/comm/launcher.h"
#include "sharding/comm/world.h"
#include "tools/config/data_sources.h"
#include "tools/config/kernel_options.h"
#include "tools/train/algorithms.h"
#include "tools/train/gather.h"
#include "tools/train/resume.h"
#include "tools/train/run_data.h"
#include "tools/train/world_options.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The run's configuration without its outputs and measurements; it watches the step `watched`. Ranks that
/// were processes are threads, unless a launcher has started processes again: the bits are the same.
Config repeated(Config config, std::int64_t watched) {
  config.data.val.clear();
  config.data.validation.clear();
  config.data.hellaswag.clear();
  config.train.sample_every = 0;
  config.train.evaluate_ema = false;
  config.train.watch = watched;
  config.train.metrics_port = 0;
  config.train.profile = {};
  config.train.measure_matmul_rate = false;
  config.train.on_nonfinite = OnNonfinite::skip;
  config.runtime.graph = false;
  const bool launched = find_launch().kind != Launch::Kind::none;
  if (config.sharding.communicator == CommunicatorKind::mpi && !launched) {
    config.sharding.communicator = CommunicatorKind::automatic;
  }
  return config;
}

/// Raises the first problem of all ranks on every rank.
void check_on_all_ranks(const std::string& own, Communicator& world) {
  std::string first;
  for (const std::string& problem : gather_texts(own, world)) {
    if (first.empty()) first = problem;
  }
  first = text_of_first_rank(first, world);
  check(first.empty(), "{}", first);
}

void restore_from(const fs::path& checkpoint, const RecordedRun& run, const RunData& data,
                  TrainingSession& session, Communicator& world) {
  const Restored restored = restore(session, checkpoint);
  check_on_all_ranks(restored.problem, world);
  check(restored.sequences == data.train.samples(),
        "data.train {} has {} sequences; {} was saved with {}", to_string(run.config().data.train),
        data.train.samples(), checkpoint.string(), restored.sequences);
  if (run.config().kernels.cublaslt != AlgorithmChoice::measured) return;
  CheckpointReader reader(checkpoint);
  if (!reader.manifest().files.contains(kAlgorithmsFile)) return;
  check_on_all_ranks(use_algorithms(reader.text(kAlgorithmsFile), world.rank()), world);
}

StepNumbersSeen numbers_of(const StepResult& result) {
  return {.loss = result.loss, .gradient_norm = result.gradient_norm};
}

}  // namespace

void replay_to(const RecordedRun& run, const StepsToReplay& steps, const StepSeen& seen,
               const std::function<void(ReplayedRank&)>& at_step) {
  const std::optional<fs::path> checkpoint = run.checkpoint_before(steps.first);
  const Config config = repeated(run.config(), steps.last);
  const ResolvedConfig resolved = resolve(config);
  const RunData data(resolved);
  const std::int64_t first =
      checkpoint ? CheckpointReader(*checkpoint).manifest().step + 1 : std::int64_t{1};
  run_world(world_options(config), [&](Communicator& world) {
    choose_kernels(config);
    TrainingSession session(resolved, world);
    if (checkpoint) restore_from(*checkpoint, run, data, session, world);
    for (std::int64_t at = first; at <= steps.last; ++at) {
      ReplayedRank rank = {session, world,
                           batches_of(data.train, at - run.batches_before(at), batch_sizes(config)),
                           at};
      if (at == steps.last) return at_step(rank);
      const StepNumbersSeen numbers = numbers_of(replay_step(run, rank));
      if (seen && world.rank() == 0) seen(at, numbers);
    }
  });
}

StepResult replay_step(const RecordedRun& run, ReplayedRank& rank) {
  const StepResult result = rank.session.step(rank.step, rank.source);
  const auto recorded = run.steps().find(rank.step);
  if (recorded == run.steps().end()) return result;
  const StepNumbersSeen now = numbers_of(result);
  check(now == recorded->second,
        "{}: step {} gives {} again, but metrics.jsonl has {}: a part of the run is not in its "
        "files, such as a fault of a memory, other data, or another build of tessera",
        run.folder().string(), rank.step, to_string(now), to_string(recorded->second));
  return result;
}

std::string start_of(const RecordedRun& run, std::int64_t step) {
  const std::optional<fs::path> checkpoint = run.checkpoint_before(step);
  return checkpoint ? checkpoint->string() : "the initial weights";
}

}  // namespace tessera
