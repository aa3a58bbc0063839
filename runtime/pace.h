// Pace: keeps the share of a core that a thread takes small, so that other threads keep theirs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tessera {

class Pace {
 public:
  /// `share` of one core, in (0, 1]. With 1 the thread never rests.
  explicit Pace(double share);

  /// Starts to count the calling thread's processor time.
  void begin();
  /// Sleeps until the calling thread's processor time since begin() is at most the share of the time
  /// that has passed. Call it after each small piece of work.
  void rest();
  /// Ends the present rest and all later ones. Any thread may call it.
  void hurry();

 private:
  const double share_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::nanoseconds processor_time_at_start_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hurry_ = false;
};

}  // namespace tessera
