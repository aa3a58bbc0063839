#include <mutex>

#include "runtime/emulation/device/emulator.h"

namespace tessera::emulation {
namespace {

std::mutex mutex;
Schedule current;

}  // namespace

std::optional<Order> parse_order(std::string_view name) {
  if (name == "forward") return Order::forward;
  if (name == "reverse") return Order::reverse;
  if (name == "shuffled") return Order::shuffled;
  return {};
}

void set_schedule(Schedule schedule) {
  const std::lock_guard lock(mutex);
  current = schedule;
}

Schedule schedule() {
  const std::lock_guard lock(mutex);
  return current;
}

}  // namespace tessera::emulation
