// Capture: a thread records device work as a graph, to launch it again in every later step.
//
// While a thread captures, the host runs a step's code as always, and streams record the work that it
// queues. A launch of the graph repeats the work of the device and nothing of the host. So code that
// keeps an account of the device's work on the host says so here, and the account is kept at every
// launch.
#pragma once

#include <functional>
#include <vector>

namespace tessera {

/// The number of the capture that this thread makes, from 1 and unique in the process; 0: none.
int current_capture();
inline bool is_capturing() {
  return current_capture() != 0;
}

/// Work of the host at every launch of the graph, the first one too. Raises Error outside a capture.
void before_every_launch(std::function<void()> work);
void after_every_launch(std::function<void()> work);

/// Raises Error in a capture: the host has no values of a device to read, and cannot wait for it.
void check_host_may_wait();

/// This thread captures during the scope.
class CaptureScope {
 public:
  struct HostWork {
    std::vector<std::function<void()>> before, after;
  };

  /// `work` gets the host's work and must outlive the scope. Raises Error if the thread captures
  /// already.
  explicit CaptureScope(HostWork& work);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

}  // namespace tessera
