// The fibers that the threads of blocks run on, kept from block to block.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "runtime/emulation/device/fiber.h"

namespace tessera::emulation {

/// Few are needed: a thread takes one when it begins, and the next thread may have it when it ends.
///
/// But the thread sanitizer takes a fiber for a thread, and what one fiber does is in order. Where
/// races are watched, every thread of a block therefore has a fiber of its own, and a block those
/// of another set than the block before: a race between two blocks shows if they ran on different
/// sets, which is a matter of turns.
class FiberPool {
 public:
  explicit FiberPool(void (*entry)()) : entry_(entry) {}

  void begin_block(unsigned threads);
  Fiber& take();
  /// The thread that ran on it has ended.
  void put(Fiber& fiber);
  /// Destroys all: those in use will not be continued.
  void clear();

 private:
  void (*entry_)();
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  // Where races are watched.
  std::array<std::vector<std::unique_ptr<Fiber>>, 4> sets_;
  unsigned set_ = 0, used_ = 0, turn_ = 0;
};

}  // namespace tessera::emulation
