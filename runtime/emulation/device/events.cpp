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

const char* name_of(EventKind kind) {
  switch (kind) {
    case EventKind::copy_started:
      return "copy_started";
    case EventKind::barrier_arrived:
      return "barrier_arrived";
    case EventKind::barrier_completed:
      return "barrier_completed";
    case EventKind::barrier_waited:
      return "barrier_waited";
    case EventKind::named_arrived:
      return "named_arrived";
    case EventKind::named_synced:
      return "named_synced";
    case EventKind::tiles_multiplied:
      return "tiles_multiplied";
    case EventKind::registers_multiplied:
      return "registers_multiplied";
    case EventKind::products_committed:
      return "products_committed";
    case EventKind::products_waited:
      return "products_waited";
  }
  return "";
}

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
      !seen_.insert({event.warp, event.kind, event.number, event.phase}).second) {
    return;
  }
  list_.push_back(event);
}

}  // namespace tessera::emulation
