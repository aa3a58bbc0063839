#include "runtime/file_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "runtime/check.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string reason() {
  return std::generic_category().message(errno);
}

}  // namespace

int FileCalls::create(const char* path) {
  return ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

int FileCalls::make_folder(const char* path) {
  return ::mkdir(path, 0777);
}

ssize_t FileCalls::write(int file, const void* bytes, std::size_t count) {
  return ::write(file, bytes, count);
}

int FileCalls::sync(int file) {
  return ::fsync(file);
}

int FileCalls::bypass_cache(int file, bool bypass) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags < 0) return -1;
  return ::fcntl(file, F_SETFL, bypass ? flags | O_DIRECT : flags & ~O_DIRECT);
}

int FileCalls::rename(const char* from, const char* to) {
  return std::rename(from, to);
}

int FileCalls::remove_folder(const char* path) {
  std::error_code code;
  fs::remove_all(path, code);
  errno = code.value();
  return code ? -1 : 0;
}

FileCalls& FileCalls::system() {
  static FileCalls calls;
  return calls;
}

OutputFile::OutputFile(FileCalls& calls, const fs::path& path)
    : calls_(calls), path_(path), file_(calls.create(path.c_str())) {
  if (file_.number() < 0) fail("cannot create {}: {}", path.string(), reason());
}

void OutputFile::bypass_cache(bool bypass) {
  if (bypass == bypasses_cache_) return;
  const bool changed = calls_.bypass_cache(file_.number(), bypass) == 0;
  if (!changed && !bypass) fail("cannot write {}: {}", path_.string(), reason());
  if (changed) bypasses_cache_ = bypass;
}

void OutputFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = calls_.write(file_.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && bypasses_cache_) {
      bypass_cache(false);
      continue;
    }
    if (written < 0) fail("cannot write {}: {}", path_.string(), reason());
    check(written > 0, "cannot write {}: the system takes no more bytes", path_.string());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    if (!bytes.empty()) bypass_cache(false);  // the rest is no longer aligned
  }
}

void OutputFile::sync() {
  if (calls_.sync(file_.number()) != 0) fail("cannot flush {}: {}", path_.string(), reason());
}

void write_file(FileCalls& calls, const fs::path& path, std::string_view text) {
  OutputFile file(calls, path);
  file.append(text);
  file.sync();
}

void make_folder(FileCalls& calls, const fs::path& path) {
  if (calls.make_folder(path.c_str()) == 0 || errno == EEXIST) return;
  fail("cannot make folder {}: {}", path.string(), reason());
}

void sync_folder(FileCalls& calls, const fs::path& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) fail("cannot open folder {}: {}", path.string(), reason());
  if (calls.sync(folder.number()) != 0 && errno != EINVAL) {
    fail("cannot flush folder {}: {}", path.string(), reason());
  }
}

void rename_durably(FileCalls& calls, const fs::path& from, const fs::path& to) {
  if (calls.rename(from.c_str(), to.c_str()) != 0) {
    fail("cannot rename {} to {}: {}", from.string(), to.string(), reason());
  }
  sync_folder(calls, fs::absolute(to).parent_path());
}

void remove_folder(FileCalls& calls, const fs::path& path) {
  if (calls.remove_folder(path.c_str()) != 0) {
    fail("cannot remove {}: {}", path.string(), reason());
  }
}

}  // namespace tessera
