// The checkpoints of a run folder: step-000005, step-000010, ....
//
// A checkpoint is written as step-000010.unfinished and renamed when it is complete and on the disk.
// One to be deleted is renamed to step-000010.deleted first. So a folder step-000010 is complete at
// any moment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/file_calls.h"

namespace tessera {

struct CheckpointFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// run/step-000010.
std::filesystem::path checkpoint_path(const std::filesystem::path& run, std::int64_t step);
/// run/step-000010.unfinished.
std::filesystem::path unfinished_checkpoint_path(const std::filesystem::path& run,
                                                 std::int64_t step);

/// The checkpoints of a run in the order of steps; none if there is no such folder.
std::vector<CheckpointFolder> checkpoints_in(const std::filesystem::path& run);

/// The checkpoints that a user names, in the order of steps: `path` is a checkpoint or a run folder.
/// Raises Error if it is neither, or a run folder without a checkpoint.
std::vector<CheckpointFolder> checkpoints_at(const std::filesystem::path& path);

/// Removes the unfinished and half-deleted checkpoints that a killed run may have left.
void remove_partial_checkpoints(FileCalls& calls, const std::filesystem::path& run);

/// Gives the unfinished checkpoint of a step its name, in the place of an earlier one. Its files are
/// on the disk already.
void publish_checkpoint(FileCalls& calls, const std::filesystem::path& run, std::int64_t step);

/// The age and state of a checkpoint.
struct CheckpointHealth {
  std::int64_t step = 0;
  /// CheckpointManifest::healthy; false if the manifest cannot be read.
  bool healthy = true;
};

/// The checkpoints to delete, given all in the order of steps: not the last `keep_last`, not those of
/// a multiple of `keep_every` (0: none), and never the last healthy one.
std::vector<std::int64_t> checkpoints_to_delete(const std::vector<CheckpointHealth>& all,
                                                std::int64_t keep_last, std::int64_t keep_every);

/// Deletes these checkpoints of a run.
void delete_old_checkpoints(FileCalls& calls, const std::filesystem::path& run,
                            std::int64_t keep_last, std::int64_t keep_every);

}  // namespace tessera
