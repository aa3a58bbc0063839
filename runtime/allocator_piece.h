// The allocator's blocks and free ranges, for the files that implement it.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/block_history.h"
#include "runtime/graph_pool.h"

namespace tessera {

/// Blocks and free ranges. A segment is a list of them, linked in the order of their addresses.
struct Allocator::Piece {
  std::byte* data;
  std::size_t bytes;
  int stream;
  Piece* before = nullptr;
  Piece* after = nullptr;
  bool is_free = false;

  bool is_segment() const { return before == nullptr && after == nullptr; }

  /// Goes through changes of the accounts, from the bytes in use and `difference` on, and back.
  static void count_again(Allocator& allocator, const GraphPool::Bytes& difference,
                          const std::vector<GraphPool::Charge>& charges);
  /// Accounts for memory that is not the allocator's.
  static void charge(Allocator& allocator, const Block& block, bool allocates) {
    const std::lock_guard lock(allocator.mutex_);
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    allocator.charge(block.category, allocates ? bytes : -bytes);
    note_block(allocator, block, allocates);
  }
  /// Returns unused segments, and keeps no memory for the peaks so far.
  static void trim_and_forget(Allocator& allocator) {
    const std::lock_guard lock(allocator.mutex_);
    allocator.trim_locked();
    for (auto& [stream, in_use] : allocator.in_use_) in_use.peak = in_use.now;
  }
};

}  // namespace tessera
