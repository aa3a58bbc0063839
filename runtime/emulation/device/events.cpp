#include "runtime/emulation/device/events.h"

#include <utility>

#include "runtime/emulation/device/sanitizers.h"

namespace tessera::emulation {
namespace {

/// Every lane of a warp takes part on its own.
bool is_of_lanes(EventKind kind) {
  return kind == EventKind::barrier_arrived || kind == EventKind::barrier_waited ||
         kind == EventKind::named_arrived || kind == EventKind::named_synced;
}

}  // namespace

void EventLog::start() {
  is_on_ = true;
  list_.clear();
}

std::vector<KernelEvent> EventLog::take() {
  is_on_ = false;
  return std::exchange(list_, {});
}

void EventLog::add(const KernelEvent& event) {
  const Unobserved unobserved;
  if (is_of_lanes(event.kind) &&
      !seen_.insert({event.block, event.warp, event.kind, event.number, event.phase}).second) {
    return;
  }
  list_.push_back(event);
}

}  // namespace tessera::emulation
