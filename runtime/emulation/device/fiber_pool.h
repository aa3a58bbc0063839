// The fibers that the threads of blocks run on, kept from block to block.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "runtime/emulation/device/fiber.h"

namespace tessera::emulation {

/// Few are needed: a thread takes a fiber when it begins, and the next thread takes it over when the
/// thread ends.
///
/// The thread sanitizer takes a fiber for a thread, with its accesses in order. So under the thread
/// sanitizer every thread of a block has its own fiber, and consecutive blocks use different sets of
/// fibers. A race between two blocks shows if the blocks used different sets.
class FiberPool {
 public:
  explicit FiberPool(void (*entry)()) : entry_(entry) {}

  void begin_block(unsigned threads);
  Fiber& take();
  /// The fiber's thread has ended.
  void put(Fiber& fiber);
  /// Destroys all fibers. Those in use will not be continued.
  void clear();

 private:
  void (*entry_)();
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  // Under the thread sanitizer.
  std::array<std::vector<std::unique_ptr<Fiber>>, 4> sets_;
  unsigned set_ = 0, used_ = 0, turn_ = 0;
};

}  // namespace tessera::emulation
