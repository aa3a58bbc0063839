// Looking at checkpoints: a table of a run's, and a check of every byte.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

/// A line for each checkpoint at `path` (checkpoints_at): its name, ranks, bytes, loss, gradient norm,
/// and whether these were finite, or why it cannot be read.
std::string checkpoint_table(const std::filesystem::path& path);

struct Verification {
  /// A line for each checkpoint that is whole, and one for each damaged block and missing file.
  std::vector<std::string> lines;
  int checkpoints = 0;
  int damaged = 0;
};

/// Reads every byte of every checkpoint at `path`.
Verification verify_checkpoints(const std::filesystem::path& path);

}  // namespace tessera
