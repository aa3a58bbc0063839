// The folder of a run: one run at a time, and the files of one run together.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace tessera {

/// Rank 0 holds it for the length of a run.
class RunFolder {
 public:
  /// Makes the folder and locks it. If it holds an earlier run, the files of that run (config.yaml,
  /// metrics.jsonl, model/) move together to earlier.1/, earlier.2/, .... Raises Error if the folder
  /// cannot be written, or if another run holds it.
  explicit RunFolder(const std::filesystem::path& path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The folder that the earlier run was moved to; empty if there was none.
  const std::filesystem::path& earlier() const { return earlier_; }

  /// The folder of the finished model, and the one that it is written to before.
  static std::filesystem::path model(const std::filesystem::path& run) { return run / "model"; }
  static std::filesystem::path unfinished_model(const std::filesystem::path& run) {
    return run / "model.unfinished";
  }
  /// Renames the unfinished model to the finished one: its files appear together.
  void finish_model() const;

 private:
  void lock();
  void move_earlier_run();

  std::filesystem::path path_;
  std::filesystem::path earlier_;
  int descriptor_ = -1;
};

/// Raises Error if a file cannot be created at `path` or is a folder. Makes the folders above it.
void check_output_file(const std::filesystem::path& path);

}  // namespace tessera
