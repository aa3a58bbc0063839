#include "tools/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/check.h"
#include "runtime/file.h"

namespace tessera {

namespace fs = std::filesystem;

RunFolder::RunFolder(const fs::path& path) : path_(path) {
  make_writable_directory(path_);
  lock();
  fs::remove_all(unfinished_model(path_));  // a killed run may have left one
  move_earlier_run();
}

RunFolder::~RunFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);  // unlocks
}

void RunFolder::lock() {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some network file systems cannot lock a folder. Then runs are not kept apart.
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const bool in_use = errno == EWOULDBLOCK;
  ::close(descriptor_);
  descriptor_ = -1;
  check(!in_use, "train.dir {} is in use by another run; choose another folder", path_.string());
}

void RunFolder::move_earlier_run() {
  std::error_code code;
  for (const char* name : {"config.yaml", "metrics.jsonl", "model"}) {
    if (!fs::exists(path_ / name)) continue;
    for (int i = 1; earlier_.empty(); ++i) {
      const fs::path folder = path_ / fmt::format("earlier.{}", i);
      if (fs::create_directory(folder, code)) earlier_ = folder;
      check(!code, "cannot make folder {}: {}", folder.string(), code.message());
    }
    fs::rename(path_ / name, earlier_ / name, code);
    check(!code, "cannot move {} to {}: {}", (path_ / name).string(), earlier_.string(),
          code.message());
  }
}

void RunFolder::finish_model() const {
  std::error_code code;
  fs::rename(unfinished_model(path_), model(path_), code);
  check(!code, "cannot rename {} to {}: {}", unfinished_model(path_).string(),
        model(path_).string(), code.message());
}

void check_output_file(const fs::path& path) {
  check(!fs::is_directory(path), "{} is a folder; name a file in it", path.string());
  make_writable_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace tessera
