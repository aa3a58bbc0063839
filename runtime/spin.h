// How a thread waits for another one before it sleeps.
//
// Kernels of a training step follow one another within microseconds, while waking a sleeping thread
// costs tens of them. So a waiting thread first asks again and again, and now and then offers its
// core to other threads. If it gets the core back late, another thread has work for it: the core is
// shared. A thread on a shared core sleeps at once, in this wait and in those of the next while.
#pragma once

#include <chrono>

namespace tessera {

/// One wait of the calling thread.
class Spin {
 public:
  /// Lets a moment pass. Returns false if the thread should sleep rather than ask again.
  bool again();

 private:
  std::chrono::steady_clock::time_point end_ = {};
  int count_ = 0;
};

/// Asks for a while whether `done`. Returns the last answer; after a false one the caller sleeps.
template <typename Done>
bool spin_until(const Done& done) {
  Spin spin;
  while (!done()) {
    if (!spin.again()) return false;
  }
  return true;
}

}  // namespace tessera
