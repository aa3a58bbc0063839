#include "runtime/countdown.h"

#include "runtime/spin.h"

namespace tessera {

void wait_for_zero(const std::atomic<int>& count) {
  for (int spins = 0;; ++spins) {
    const int left = count.load(std::memory_order_acquire);
    if (left == 0) return;
    if (spins < kSpins) {
      spin(spins);
    } else {
      count.wait(left, std::memory_order_acquire);
    }
  }
}

void count_down(std::atomic<int>& count) {
  if (count.fetch_sub(1, std::memory_order_acq_rel) == 1) count.notify_all();
}

}  // namespace tessera
