#include "tools/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "runtime/check.h"
#include "runtime/file.h"
#include "sharding/checkpoint/folder.h"
#include "tools/config/parse.h"
#include "tools/train/tensorboard.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

/// Makes `path` if it does not exist.
const fs::path& made(const fs::path& path) {
  make_writable_directory(path);
  return path;
}

/// Raises Error if the folder `path` cannot be made or files cannot be created in it.
void check_can_be_made(const fs::path& path) {
  std::error_code code;
  fs::path existing = fs::absolute(path);
  while (!fs::exists(existing, code)) {
    check(!code, "cannot make folder {}: {}", existing.string(), code.message());
    existing = existing.parent_path();
  }
  make_writable_directory(existing);
}

std::vector<fs::path> tensorboard_files(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    if (TensorboardFile::is_name(name.string())) names.push_back(name);
  }
  return names;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  check(descriptor_.number() >= 0, "cannot open folder {}: {}", folder.string(),
        std::generic_category().message(errno));
  const bool in_use = ::flock(descriptor_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  check(!in_use, "train.dir {} is in use by another run; choose another folder", folder.string());
}

bool FolderLock::is_at(const fs::path& path) const {
  struct stat locked = {};
  struct stat found = {};
  return ::fstat(descriptor_.number(), &locked) == 0 && ::stat(path.c_str(), &found) == 0 &&
         locked.st_dev == found.st_dev && locked.st_ino == found.st_ino;
}

RunFolder::RunFolder(const fs::path& path) : path_(path), lock_(made(path)) {
  fs::remove_all(unfinished_model(path_));
  remove_partial_checkpoints(FileCalls::system(), path_);
}

void RunFolder::start_new() {
  for (const char* name :
       {"config.yaml", "metrics.jsonl", "log.txt", "profile", "kept", "replay", "model"})
    move_to_earlier(name);
  for (const CheckpointFolder& checkpoint : checkpoints_in(path_)) {
    move_to_earlier(checkpoint.path.filename());
  }
  for (const fs::path& name : tensorboard_files(path_)) move_to_earlier(name);
}

void RunFolder::continue_after(std::int64_t step) {
  move_to_earlier("model");
  for (const CheckpointFolder& checkpoint : checkpoints_in(path_)) {
    if (checkpoint.step > step) move_to_earlier(checkpoint.path.filename());
  }
}

void RunFolder::check_in_place() const {
  check(lock_.is_at(path_),
        "train.dir {} was deleted, moved or replaced while the run wrote to it; the run stops, and "
        "no model was saved",
        path_.string());
}

void RunFolder::move_to_earlier(const fs::path& name) {
  if (!fs::exists(path_ / name)) return;
  std::error_code code;
  for (int i = 1; earlier_.empty(); ++i) {
    const fs::path folder = path_ / fmt::format("earlier.{}", i);
    if (fs::create_directory(folder, code)) earlier_ = folder;
    check(!code, "cannot make folder {}: {}", folder.string(), code.message());
  }
  fs::rename(path_ / name, earlier_ / name, code);
  check(!code, "cannot move {} to {}: {}", (path_ / name).string(), earlier_.string(),
        code.message());
}

void RunFolder::finish_model() const {
  check_in_place();
  std::error_code code;
  fs::rename(unfinished_model(path_), model(path_), code);
  check(!code, "cannot rename {} to {}: {}", unfinished_model(path_).string(),
        model(path_).string(), code.message());
}

void check_outputs(const Config& config) {
  const fs::path& folder = config.train.dir;
  check_key(config, "train.dir", [&] {
    check_can_be_made(folder);
    if (fs::exists(folder)) {
      const FolderLock lock(folder);
    }
  });
}

}  // namespace tessera
