// Block history: an allocator's blocks with their addresses, times and spans.
//
// Allocator::history() has sizes and totals, which predictions are tested with. This recording is for
// pictures of memory: it also says which block, when, and within which spans.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/allocator.h"

namespace tessera {

struct BlockEvent {
  bool allocates = true;  // otherwise it releases
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  Category category = Category::other;
  int stream = 0;
  std::chrono::steady_clock::time_point time;
  /// The names of the thread's open spans, the outermost first. Releases have none.
  std::vector<std::string> spans;
};

/// Starts or stops recording an allocator's blocks. Starting forgets its earlier events.
void record_blocks(const Allocator& allocator, bool on);

/// The recorded events in their order; recording stops and forgets them.
std::vector<BlockEvent> take_blocks(const Allocator& allocator);

/// The allocator's report of a block; cheap while no allocator is recorded.
void note_block(const Allocator& allocator, const Allocator::Block& block, bool allocates);

}  // namespace tessera
