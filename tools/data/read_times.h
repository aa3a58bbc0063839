// ReadTimes: how long a rank has read each of its token files.
//
// A part of RankContext::state. A slow disk is then told from slow work on its bytes.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>

#include "runtime/context.h"

namespace tessera {

struct ReadTimes {
  /// Milliseconds by path.
  std::map<std::string, double> ms;
};

/// Adds the time of its scope to the file's. Without a context it does nothing.
class ReadTimer {
 public:
  explicit ReadTimer(const std::filesystem::path& path) : path_(path) {}
  ~ReadTimer() {
    RankContext* const here = context_or_null();
    if (here == nullptr) return;
    const auto time = std::chrono::steady_clock::now() - begin_;
    here->state<ReadTimes>().ms[path_.string()] +=
        std::chrono::duration<double, std::milli>(time).count();
  }
  ReadTimer(const ReadTimer&) = delete;
  ReadTimer& operator=(const ReadTimer&) = delete;

 private:
  const std::filesystem::path& path_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tessera
