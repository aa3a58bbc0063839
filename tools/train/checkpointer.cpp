#include "tools/train/checkpointer.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/checkpoint/folder.h"
#include "tools/train/gather.h"

namespace tessera {

namespace {

/// The share of a core that a rank's writing thread takes where the ranks compute on all cores.
/// docs/checkpoints.md has the measurement.
constexpr double kPacedShare = 0.04;

/// Whether the ranks' threads leave no core of this machine to other threads.
bool ranks_use_all_cores(const Communicator& world) {
  return context().device().is_cpu() &&
         world.size() * context().threads().size() >= available_threads();
}

}  // namespace

Checkpointer::Checkpointer(const TrainConfig& config, Communicator& world,
                           std::function<void(std::string_view)> log, FileCalls& calls)
    : config_(config),
      world_(world),
      log_(std::move(log)),
      calls_(calls),
      writer_(calls, world.rank()),
      share_of_core_(ranks_use_all_cores(world) ? kPacedShare : 1.0) {}

bool Checkpointer::is_due(std::int64_t step) const {
  const std::int64_t every = config_.checkpoint_every;
  if (every == 0) return false;
  return step % every == 0 || (step == config_.steps && step > every);
}

void Checkpointer::save(std::int64_t step, bool healthy, const std::vector<TensorToSave>& tensors,
                        CheckpointTexts texts) {
  // The thread was too slow: training must wait for it here.
  if (step_ != 0) share_of_core_ = std::min(1.0, 2.0 * share_of_core_);
  finish();
  begun_ = std::chrono::steady_clock::now();
  step_ = step;
  healthy_ = healthy;
  texts_ = std::move(texts);
  writer_.start(unfinished_checkpoint_path(config_.dir, step), tensors, share_of_core_);
}

void Checkpointer::poll() {
  if (published_ != 0 && publisher_.done()) report();
  if (step_ == 0) return;
  const auto ranks = gather_numbers({writer_.done() ? 1 : 0}, world_);
  if (std::all_of(ranks.begin(), ranks.end(), [](const auto& done) { return done[0] == 1; })) {
    complete();
  }
}

std::string Checkpointer::finish() {
  if (step_ != 0) complete();
  report();
  return problem_;
}

void Checkpointer::complete() {
  const CheckpointWriter::Result own = writer_.finish();
  auto problems = gather_texts(own.problem, world_);
  auto manifests =
      gather_texts(own.problem.empty() ? to_json(own.manifest) : std::string(), world_);
  if (world_.rank() == 0) {
    published_ = step_;
    publisher_.start([this, manifests = std::move(manifests), problems = std::move(problems)] {
      publish(manifests, problems);
    });
  }
  step_ = 0;
}

void Checkpointer::publish(const std::vector<std::string>& manifests,
                           const std::vector<std::string>& problems) {
  const std::filesystem::path folder = unfinished_checkpoint_path(config_.dir, published_);
  try {
    for (const std::string& problem : problems) check(problem.empty(), "{}", problem);
    CheckpointManifest manifest = {.step = published_, .healthy = healthy_, .state = texts_.state};
    for (const std::string& part : manifests) manifest.add(parse_manifest(part));
    check_complete(manifest);
    for (const auto& [name, text] : texts_.files) {
      add_text_file(calls_, folder, name, text, manifest);
    }
    write_file(calls_, folder / CheckpointManifest::kFileName, to_json(manifest));
    publish_checkpoint(calls_, config_.dir, published_);
  } catch (...) {
    // A full disk needs the space. If even this fails, the next run removes it.
    calls_.remove_folder(folder.c_str());
    throw;
  }
  delete_old();
}

void Checkpointer::delete_old() {
  try {
    delete_old_checkpoints(calls_, config_.dir, config_.keep_last, config_.keep_every);
  } catch (const Error& error) {
    deletion_ = error.what();
  }
}

void Checkpointer::report() {
  if (published_ == 0) return;
  problem_ = publisher_.finish();
  if (problem_.empty()) {
    const std::filesystem::path path = checkpoint_path(config_.dir, published_);
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - begun_;
    log_(fmt::format("saved {}", path.string()));
    if (saved_) saved_(published_, path, time.count());
  } else {
    log_(fmt::format("warning: no checkpoint of step {}: {}", published_, problem_));
  }
  if (!deletion_.empty()) log_(fmt::format("warning: an old checkpoint stays: {}", deletion_));
  deletion_.clear();
  published_ = 0;
}

}  // namespace tessera
