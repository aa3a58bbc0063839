#include "runtime/countdown.h"

#include "runtime/spin.h"

namespace tessera {

void wait_for_zero(const std::atomic<int>& count) {
  const auto left = [&] { return count.load(std::memory_order_acquire); };
  if (spin_until([&] { return left() == 0; })) return;
  for (int now = left(); now != 0; now = left()) count.wait(now, std::memory_order_acquire);
}

void count_down(std::atomic<int>& count) {
  if (count.fetch_sub(1, std::memory_order_acq_rel) == 1) count.notify_all();
}

}  // namespace tessera
