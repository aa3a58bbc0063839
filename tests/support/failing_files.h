// File calls of which one fails, or all from one on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "runtime/file_calls.h"

namespace tessera::test {

class FailingFiles final : public FileCalls {
 public:
  enum class Fault {
    once,        // call `first` fails
    from_now,    // call `first` and all later ones fail, as when the process is killed there
    short_write  // call `first` writes one byte if it is a write; the next write fails
  };

  explicit FailingFiles(std::int64_t first = -1, Fault fault = Fault::once, int code = EIO)
      : first_(first), fault_(fault), code_(code) {}

  /// Calls so far.
  std::int64_t calls() const { return calls_; }

  int create(const char* path) override { return fails() ? -1 : FileCalls::create(path); }
  int make_folder(const char* path) override { return fails() ? -1 : FileCalls::make_folder(path); }
  /// Leaves out the waiting for the disk, which tests have no use for.
  int sync(int) override { return fails() ? -1 : 0; }
  int rename(const char* from, const char* to) override {
    return fails() ? -1 : FileCalls::rename(from, to);
  }
  int remove_folder(const char* path) override {
    return fails() ? -1 : FileCalls::remove_folder(path);
  }
  ssize_t write(int file, const void* bytes, std::size_t count) override {
    if (fault_ != Fault::short_write) {
      return fails() ? -1 : FileCalls::write(file, bytes, count);
    }
    const std::int64_t call = calls_++;
    if (was_short_) return fail();
    was_short_ = call == first_;
    return FileCalls::write(file, bytes, was_short_ ? std::min<std::size_t>(count, 1) : count);
  }

 private:
  int fail() const {
    errno = code_;
    return -1;
  }
  bool fails() {
    const std::int64_t call = calls_++;
    if (fault_ == Fault::short_write || first_ < 0 || call < first_) return false;
    if (fault_ == Fault::once && call > first_) return false;
    errno = code_;
    return true;
  }

  const std::int64_t first_;
  const Fault fault_;
  const int code_;
  std::atomic<std::int64_t> calls_ = 0;
  std::atomic<bool> was_short_ = false;
};

}  // namespace tessera::test
