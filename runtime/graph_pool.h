// GraphPool: the memory of a captured graph.
//
// A graph writes to the addresses of its capture at every launch. So blocks that are allocated in the
// capture come from segments of their own, which serve no other request and stay until the graph's end.
// Within the capture they are reused as always.
//
// The accounts count a launch as they count the same step without a graph: they go through the
// capture's allocations again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/allocator.h"

namespace tessera {

class GraphPool {
 public:
  /// From here to stop() this thread's blocks of `allocator` belong to the pool. Unused segments go
  /// back to the source first, and the peaks by which it keeps memory begin again. A thread has one
  /// pool of an allocator at a time.
  explicit GraphPool(std::shared_ptr<Allocator> allocator);
  void stop();
  /// Its segments become the allocator's once more, and those without a block go back to the source.
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// Counts the capture's allocations and releases again. The bytes in use are the same afterwards.
  void count_again() const;

  /// An allocation (bytes > 0) or a release of the capture.
  struct Charge {
    Category category;
    std::int64_t bytes;
  };
  using Bytes = std::array<std::int64_t, kCategories>;

  // For the allocator, under its mutex.
  void note_allocation(const Charge& charge);
  void note_release(const Charge& charge, bool of_pool);
  void note_later_release(const Charge& charge) { live_[index(charge)] += charge.bytes; }
  bool belongs_to(const Allocator& allocator) const { return allocator_.get() == &allocator; }
  int number() const { return number_; }

 private:
  static std::size_t index(const Charge& charge) {
    return static_cast<std::size_t>(charge.category);
  }

  std::shared_ptr<Allocator> allocator_;
  int number_;
  std::vector<Charge> charges_;
  /// Bytes of the pool's blocks that exist now, and of older blocks that the capture released.
  Bytes live_{}, released_{};
};

/// The number that the allocator gives a stream in a pool holds both.
inline constexpr int kStreamsOfPool = 1 << 12;
inline bool is_in_graph_pool(int stream) {
  return stream >= kStreamsOfPool;
}

// For the allocator, under its mutex.

/// The pool that this thread fills from the allocator; null if it fills none.
GraphPool* pool_of(const Allocator& allocator);
/// The stream, or its number in the pool that this thread fills.
int key_of(const Allocator& allocator, int stream);
/// The pool of memory with this number of a stream; null if no graph uses it.
GraphPool* pool_with(int stream);
/// A block with this number of a stream is released.
void note_release(const Allocator& allocator, int stream, const GraphPool::Charge& charge);

}  // namespace tessera
