// BackgroundTask: work on a thread of its own, and its failure.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "runtime/cores.h"

namespace tessera {

class BackgroundTask {
 public:
  BackgroundTask() = default;
  /// Waits for the thread.
  ~BackgroundTask() {
    if (thread_.joinable()) thread_.join();
  }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// The task before must have been finished.
  void start(std::function<void()> body) {
    done_ = false;
    thread_ = start_unbound([this, body = std::move(body)] {
      problem_.clear();
      try {
        body();
      } catch (const std::exception& error) {
        problem_ = error.what();
      }
      done_ = true;
    });
  }
  /// Whether finish() would return at once.
  bool done() const { return done_; }
  /// Waits for the body. Returns the message of its exception, or an empty text.
  std::string finish() {
    if (thread_.joinable()) thread_.join();
    return std::exchange(problem_, {});
  }

 private:
  std::string problem_;
  std::atomic<bool> done_ = true;
  std::thread thread_;
};

}  // namespace tessera
