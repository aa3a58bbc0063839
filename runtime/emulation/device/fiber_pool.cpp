#include "runtime/emulation/device/fiber_pool.h"

#include "runtime/emulation/device/sanitizers.h"

namespace tessera::emulation {

void FiberPool::begin_block(unsigned threads) {
  const unsigned sets = threads > 512 ? 2 : 4;  // the thread sanitizer can have some 8000 threads
  const unsigned random = ++turn_ * 2654435761u >> 16;
  set_ = (set_ + 1 + random % (sets - 1)) % sets;
  used_ = 0;
}

Fiber& FiberPool::take() {
  if (kRacesAreWatched) {
    auto& set = sets_[set_];
    if (used_ == set.size()) {
      const Unobserved unobserved;
      set.push_back(std::make_unique<Fiber>(entry_));
    }
    return *set[used_++];
  }
  if (free_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(entry_));
    return *fibers_.back();
  }
  Fiber& fiber = *free_.back();
  free_.pop_back();
  return fiber;
}

void FiberPool::put(Fiber& fiber) {
  if (!kRacesAreWatched) free_.push_back(&fiber);
}

void FiberPool::clear() {
  free_.clear();
  fibers_.clear();
  for (auto& set : sets_) set.clear();
  used_ = 0;
}

}  // namespace tessera::emulation
