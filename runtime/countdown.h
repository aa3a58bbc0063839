// A count of tasks that threads wait for.
#pragma once

#include <atomic>

namespace tessera {

/// Waits until the count is 0. The thread spins, yields its core now and then, and at last sleeps.
void wait_for_zero(const std::atomic<int>& count);
/// One task less. Wakes the threads that wait for zero.
void count_down(std::atomic<int>& count);

}  // namespace tessera
