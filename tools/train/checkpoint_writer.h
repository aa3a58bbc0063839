// CheckpointWriter: writes one rank's part of a checkpoint while training goes on.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/file_calls.h"
#include "runtime/pace.h"
#include "tools/train/background_task.h"
#include "tools/train/run_state.h"

namespace tessera {

class CheckpointWriter {
 public:
  /// `calls` must outlive the writer. `rank` names the file.
  CheckpointWriter(FileCalls& calls, int rank) : calls_(calls), rank_(rank) {}
  /// Waits for the thread, which no longer rests: a run that fails ends at once.
  ~CheckpointWriter() {
    if (pace_) pace_->hurry();
  }

  /// Copies the tensors to host memory and starts to write them into `folder`, on a thread that takes
  /// at most this share of a core. When start() returns the tensors may change. The copies are charged
  /// to Category::other.
  void start(const std::filesystem::path& folder, const std::vector<TensorToSave>& tensors,
             double share_of_core);
  /// Whether the thread has nothing left to do.
  bool done() const { return task_.done(); }

  struct Result {
    CheckpointManifest manifest;
    /// Empty if all went well.
    std::string problem;
  };
  /// Waits for the thread, which no longer rests. Call it once after start(), on the same thread.
  Result finish();

 private:
  FileCalls& calls_;
  const int rank_;
  std::vector<PartToWrite> parts_;
  std::vector<Tensor> copies_;
  CheckpointManifest manifest_;
  std::optional<Pace> pace_;
  BackgroundTask task_;
};

}  // namespace tessera
