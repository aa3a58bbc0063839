// The folder of a run: one run at a time, and the files of one run together.
#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/descriptor.h"
#include "tools/config/config.h"

namespace tessera {

/// An exclusive lock on the folder of a run, held until the end of the scope.
class FolderLock {
 public:
  /// Raises Error if another run holds the lock. Some network file systems cannot lock a folder.
  /// Then runs are not kept apart.
  explicit FolderLock(const std::filesystem::path& folder);

  /// Whether `path` still names the folder that was locked.
  bool is_at(const std::filesystem::path& path) const;

 private:
  Descriptor descriptor_;
};

/// Rank 0 holds it for the length of a run.
class RunFolder {
 public:
  /// Makes the folder, locks it and removes half-written files of a killed run. Raises Error if
  /// the folder cannot be written, or if another run holds it.
  explicit RunFolder(const std::filesystem::path& path);

  /// A new run begins: the files of an earlier one (config.yaml, metrics.jsonl, log.txt, profile/, kept/,
  /// replay/, model/, checkpoints, TensorBoard's) move together to earlier.1/, earlier.2/, ....
  void start_new();
  /// The run in this folder continues after `step`. Its model and checkpoints of later steps, if there
  /// are any, move to earlier.1/ and so on. The other files stay.
  void continue_after(std::int64_t step);

  const std::filesystem::path& path() const { return path_; }
  /// The folder that the earlier run was moved to; empty if there was none.
  const std::filesystem::path& earlier() const { return earlier_; }

  /// The folder of the finished model, and the folder that its files are written to first.
  static std::filesystem::path model(const std::filesystem::path& run) { return run / "model"; }
  static std::filesystem::path unfinished_model(const std::filesystem::path& run) {
    return run / "model.unfinished";
  }
  /// Renames the unfinished model to the finished one: its files appear together.
  void finish_model() const;
  /// Raises Error if the folder was deleted, moved or replaced since this run began: its files would
  /// be lost, or lie among those of another run.
  void check_in_place() const;

 private:
  /// Moves a file or folder, if it exists, to earlier_.
  void move_to_earlier(const std::filesystem::path& name);

  std::filesystem::path path_;
  FolderLock lock_;
  std::filesystem::path earlier_;
};

/// Raises Error, with the place of the key, if train.dir cannot be written, or if
/// another run holds train.dir. Makes no folder.
void check_outputs(const Config& config);

}  // namespace tessera
