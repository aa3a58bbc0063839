#include "runtime/cores.h"

#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <utility>

#include "runtime/check.h"

namespace tessera {
namespace {

static_assert(CPU_SETSIZE <= kMostCores);

/// The cores from before the calling thread was bound; null if it is not bound.
thread_local const std::vector<int>* unbound_cores_ = nullptr;

/// The cores that the system lets the calling thread run on now.
std::vector<int> cores_now() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

std::vector<int> allowed_cores() {
  return unbound_cores_ != nullptr ? *unbound_cores_ : cores_now();
}

int set_cores(std::thread::native_handle_type thread, std::span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return pthread_setaffinity_np(thread, sizeof(set), &set);
}

void bind_to_core(std::thread::native_handle_type thread, int core) {
  const int error = set_cores(thread, {&core, 1});
  check(error == 0, "cannot bind a thread to core {}: {}; set runtime.pin=false", core,
        std::strerror(error));
}

BoundThread::BoundThread(int core) : before_(cores_now()), outer_(unbound_cores_) {
  bind_to_core(pthread_self(), core);
  if (outer_ == nullptr) unbound_cores_ = &before_;
}

BoundThread::~BoundThread() {
  set_cores(pthread_self(), before_);
  unbound_cores_ = outer_;
}

std::thread start_unbound(std::function<void()> body) {
  if (unbound_cores_ == nullptr) return std::thread(std::move(body));
  // It inherits the cores of this thread, which are those from before for a moment.
  const struct Rebind {
    std::vector<int> cores = cores_now();
    ~Rebind() { set_cores(pthread_self(), cores); }
  } rebind;
  set_cores(pthread_self(), *unbound_cores_);
  return std::thread(std::move(body));
}

}  // namespace tessera
