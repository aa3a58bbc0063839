// Checkpointer: saves checkpoints of a run and deletes old ones.
//
// save() copies the state and returns; every rank then writes its file on a thread of its own. poll(),
// between steps, lets the ranks agree that all files are written. Then rank 0, on its thread, writes
// the manifest, gives the checkpoint its name and deletes old ones. A checkpoint that cannot be written
// is a warning: training goes on, and the one before it stays.
//
// Where the ranks compute on all cores, the writing threads take a small share of a core, so that
// training keeps its speed. The checkpoint then takes longer until it has its name. The share is doubled
// each time that the next checkpoint had to wait for the one before.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "sharding/comm/communicator.h"
#include "tools/config/config.h"
#include "tools/train/checkpoint_writer.h"

namespace tessera {

/// Rank 0's contents of a checkpoint, next to the tensors.
struct CheckpointTexts {
  /// See run_state_text.
  std::string state;
  /// The small files by their names: configuration, model, tokenizer.
  std::map<std::string, std::string> files;
};

/// Every rank of `world` makes one and makes the same calls.
class Checkpointer {
 public:
  /// `log` prints a line, on rank 0.
  Checkpointer(const TrainConfig& config, Communicator& world,
               std::function<void(std::string_view)> log, FileCalls& calls = FileCalls::system());

  /// Calls `saved` on rank 0 when a checkpoint has its name: its path, and the milliseconds since
  /// save().
  void on_saved(
      std::function<void(std::int64_t step, const std::filesystem::path& path, double ms)> saved) {
    saved_ = std::move(saved);
  }
  /// Whether the configuration asks for a checkpoint after this step.
  bool is_due(std::int64_t step) const;
  /// Starts to save the state after `step`. An earlier checkpoint is finished first. `healthy`: loss
  /// and gradient norm of the step were finite.
  void save(std::int64_t step, bool healthy, const std::vector<TensorToSave>& tensors,
            CheckpointTexts texts);
  /// Publishes the checkpoint that is being written once every rank has written its file. A collective while
  /// there is one.
  void poll();
  /// Waits until it is published. A collective. Returns the problem of the last checkpoint on
  /// rank 0; empty if it was written.
  std::string finish();

 private:
  /// Every rank's file is written, or soon will be: gathers the manifests and starts to publish.
  void complete();
  /// On a thread of rank 0. Raises Error if the checkpoint did not get its name.
  void publish(const std::vector<std::string>& manifests, const std::vector<std::string>& problems);

  void delete_old();
  /// On rank 0: waits for publish(), if it was started, and reports.
  void report();

  const TrainConfig& config_;
  Communicator& world_;
  const std::function<void(std::string_view)> log_;
  std::function<void(std::int64_t, const std::filesystem::path&, double)> saved_;
  FileCalls& calls_;
  CheckpointWriter writer_;
  double share_of_core_;
  /// The step of the checkpoint that the ranks are writing, or 0.
  std::int64_t step_ = 0;
  bool healthy_ = true;
  CheckpointTexts texts_;
  std::string problem_;
  /// The step of the checkpoint that rank 0 is publishing, or 0.
  std::int64_t published_ = 0;
  std::chrono::steady_clock::time_point begun_;
  /// The problem of deleting old ones.
  std::string deletion_;
  BackgroundTask publisher_;
};

}  // namespace tessera
