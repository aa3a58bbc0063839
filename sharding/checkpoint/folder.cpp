#include "sharding/checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

#include "runtime/check.h"
#include "sharding/checkpoint/manifest.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr const char* kUnfinished = ".unfinished";
constexpr const char* kDeleted = ".deleted";

/// The step of a folder's name; -1 for any other name.
std::int64_t step_of(const std::string& name) {
  std::int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  const bool is_step = parsed.ec == std::errc() && parsed.ptr == end && step >= 0;
  return is_step && checkpoint_path({}, step) == name ? step : -1;
}

/// The checkpoint is gone at once, its files soon.
void remove_checkpoint(FileCalls& calls, const fs::path& run, std::int64_t step) {
  const fs::path path = checkpoint_path(run, step);
  const fs::path deleted = checkpoint_path(run, step) += kDeleted;
  if (fs::exists(deleted)) remove_folder(calls, deleted);
  rename_durably(calls, path, deleted);
  remove_folder(calls, deleted);
}

bool is_healthy(const fs::path& checkpoint) {
  try {
    return read_checkpoint_manifest(checkpoint).healthy;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

fs::path checkpoint_path(const fs::path& run, std::int64_t step) {
  return run / fmt::format("{}{:06}", kPrefix, step);
}

fs::path unfinished_checkpoint_path(const fs::path& run, std::int64_t step) {
  return checkpoint_path(run, step) += kUnfinished;
}

std::vector<CheckpointFolder> checkpoints_in(const fs::path& run) {
  std::vector<CheckpointFolder> found;
  std::error_code code;
  for (fs::directory_iterator entry(run, code), end; !code && entry != end; entry.increment(code)) {
    const std::int64_t step = step_of(entry->path().filename().string());
    if (step >= 0 && entry->is_directory(code)) found.push_back({step, entry->path()});
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointFolder& a, const CheckpointFolder& b) { return a.step < b.step; });
  return found;
}

std::vector<CheckpointFolder> checkpoints_at(const fs::path& path) {
  const fs::path named = path.has_filename() ? path : path.parent_path();  // "runs/a/"
  const std::int64_t step = step_of(named.filename().string());
  if (step >= 0 && fs::is_directory(named)) return {{step, named}};
  std::vector<CheckpointFolder> found = checkpoints_in(named);
  check(!found.empty(),
        "{} is no checkpoint and no run folder with one; give a folder such as "
        "runs/latest/step-001000, or runs/latest",
        path.string());
  return found;
}

void remove_partial_checkpoints(FileCalls& calls, const fs::path& run) {
  std::vector<fs::path> partial;
  for (const fs::directory_entry& entry : fs::directory_iterator(run)) {
    const fs::path name = entry.path().filename();
    const bool is_partial = name.extension() == kUnfinished || name.extension() == kDeleted;
    if (is_partial && step_of(name.stem().string()) >= 0) partial.push_back(entry.path());
  }
  for (const fs::path& path : partial) remove_folder(calls, path);
}

void publish_checkpoint(FileCalls& calls, const fs::path& run, std::int64_t step) {
  const fs::path unfinished = unfinished_checkpoint_path(run, step);
  const fs::path path = checkpoint_path(run, step);
  sync_folder(calls, unfinished);
  if (fs::exists(path)) remove_checkpoint(calls, run, step);
  rename_durably(calls, unfinished, path);
}

std::vector<std::int64_t> checkpoints_to_delete(const std::vector<CheckpointHealth>& all,
                                                std::int64_t keep_last, std::int64_t keep_every) {
  std::int64_t last_healthy = -1;
  for (const CheckpointHealth& checkpoint : all) {
    if (checkpoint.healthy) last_healthy = checkpoint.step;
  }
  std::vector<std::int64_t> old;
  for (std::int64_t i = 0; i + keep_last < std::ssize(all); ++i) {
    const std::int64_t step = all[static_cast<std::size_t>(i)].step;
    const bool kept = keep_every > 0 && step % keep_every == 0;
    if (!kept && step != last_healthy) old.push_back(step);
  }
  return old;
}

void delete_old_checkpoints(FileCalls& calls, const fs::path& run, std::int64_t keep_last,
                            std::int64_t keep_every) {
  std::vector<CheckpointHealth> all;
  for (const CheckpointFolder& checkpoint : checkpoints_in(run)) {
    all.push_back({checkpoint.step, is_healthy(checkpoint.path)});
  }
  for (const std::int64_t step : checkpoints_to_delete(all, keep_last, keep_every)) {
    remove_checkpoint(calls, run, step);
  }
}

}  // namespace tessera
