#include "runtime/capture.h"

#include <atomic>
#include <utility>

#include "runtime/check.h"

namespace tessera {
namespace {

thread_local int current_capture_ = 0;
thread_local CaptureScope::HostWork* host_work_ = nullptr;

CaptureScope::HostWork& host_work() {
  check(is_capturing(), "work for every launch of a graph is given outside a capture");
  return *host_work_;
}

}  // namespace

int current_capture() {
  return current_capture_;
}

void before_every_launch(std::function<void()> work) {
  host_work().before.push_back(std::move(work));
}

void after_every_launch(std::function<void()> work) {
  host_work().after.push_back(std::move(work));
}

void check_host_may_wait() {
  check(!is_capturing(),
        "runtime.graph: the step reads the device's values on the host, so it cannot be a CUDA "
        "graph; set runtime.graph=false");
}

CaptureScope::CaptureScope(HostWork& work) {
  static std::atomic<int> captures = 0;
  check(!is_capturing(), "this thread captures a graph already");
  current_capture_ = ++captures;
  host_work_ = &work;
}

CaptureScope::~CaptureScope() {
  current_capture_ = 0;
  host_work_ = nullptr;
}

}  // namespace tessera
