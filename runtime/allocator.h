// A caching allocator that accounts for every byte.
//
// Memory is taken from the source in segments. A segment is cut into blocks, and neighbouring blocks
// that are free become one again. A free block serves later requests of the same stream. An in-order
// stream may reuse a block at once: the work that reads the old contents was queued before the work
// that writes the new ones. If another stream uses a block, its user keeps the block alive until that
// stream's event has been waited on.
//
// A request goes to the smallest free block of its stream that holds it, if that is less than twice as
// large. Otherwise it takes a new segment, as long as no more is reserved than was in use at the peak.
// Beyond that it cuts a larger block. Without one, free segments go back to the source, as many
// as keep `reserved` within 1/16 of the peak, and the request takes a new segment. If the source has no
// memory, free segments go back one by one until it has.
//
// The steps of a training run ask for the same sizes again and again, so only the first steps reach the
// source. If shapes vary, a step cuts the segments of larger steps.
//
// The accounts count *requested* bytes. Blocks are multiples of 512 bytes. `reserved` counts the bytes
// of segments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/category.h"
#include "runtime/device.h"

namespace tessera {

/// The source of an allocator's raw memory: the host's heap or a GPU.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least 64-byte aligned; nullptr if no memory is left.
  virtual std::byte* acquire(std::size_t bytes) = 0;
  virtual void release(std::byte* data, std::size_t bytes) = 0;

  /// The cache's reports to memory checkers, in the order of `stream`: the first `bytes` bytes of
  /// the block are in use from here on, or none are. Checkers report accesses to other bytes.
  virtual void mark_used(std::byte* data, std::size_t bytes, std::size_t block_bytes,
                         int stream) = 0;
  virtual void mark_unused(std::byte* data, std::size_t block_bytes, int stream) = 0;
};

/// Memory that the host reads and writes. The address sanitizer knows which bytes are in use.
class HostMemorySource : public MemorySource {
 public:
  void mark_used(std::byte* data, std::size_t bytes, std::size_t block_bytes, int stream) final;
  void mark_unused(std::byte* data, std::size_t block_bytes, int stream) final;
};

/// Pages of the host's heap.
std::unique_ptr<MemorySource> host_memory();

/// Addresses for a dry run (runtime/context.h). Every byte reads as zero. A write to addresses that
/// are not writable ends the process, and their segments may overlap; writable ones get memory where
/// they are written.
enum class Writable : bool { no = false, yes = true };
std::unique_ptr<MemorySource> addresses_only(Writable writable);

/// Live bytes now and at the peak, per category and in total.
struct MemoryAccount {
  struct Line {
    std::int64_t current = 0;
    /// The most so far. Categories have their peaks at different times.
    std::int64_t peak = 0;
    /// The bytes when the total reached its peak. Those of all categories add up to that peak.
    std::int64_t at_peak = 0;
  };
  std::array<Line, kCategories> categories;
  Line total;
  /// Bytes taken from the source, in use or cached, and the most so far.
  std::int64_t reserved = 0;
  std::int64_t reserved_peak = 0;
  /// Segments taken from the source so far.
  std::int64_t segments = 0;
  /// Requests so far for which the source had no memory, before cached memory went back to it.
  std::int64_t retries = 0;

  const Line& operator[](Category category) const { return categories[static_cast<int>(category)]; }
};

/// One allocation (bytes > 0) or release (bytes < 0), in order of occurrence.
struct MemoryEvent {
  Category category;
  std::int64_t bytes;
  std::int64_t total_after;
};

class Allocator {
 public:
  Allocator(Device device, std::unique_ptr<MemorySource> source);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// A part of a segment.
  struct Piece;

  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  // as requested
    Category category = Category::other;
    int stream = 0;
    Piece* piece = nullptr;  // the allocator's
  };

  /// Raises Error with the table of live bytes if the device has no memory left, even after the
  /// cache was returned to it. A request of 0 bytes yields a null block.
  Block allocate(std::size_t bytes, Category category, int stream);
  void release(const Block& block);

  const Device& device() const { return device_; }
  MemoryAccount account() const;
  /// Sets every peak of the account to the current value.
  void reset_peaks();
  /// Returns unused segments to the source.
  void trim();

  /// Starts or stops recording. Starting forgets earlier events.
  void record_history(bool on);
  std::vector<MemoryEvent> history() const;

  /// The bytes that a request occupies in memory: the next multiple of 512, and under the address
  /// sanitizer some behind it that are not in use.
  static std::size_t block_bytes(std::size_t bytes);

 private:
  /// By stream, then by size, then by address.
  struct Smaller {
    using is_transparent = void;
    bool operator()(const Piece* a, const Piece* b) const;
    bool operator()(const Piece* a, const std::pair<int, std::size_t>& request) const;
  };
  /// Bytes of the blocks of a stream, now and at the peak.
  struct InUse {
    std::size_t now = 0;
    std::size_t peak = 0;
  };

  Piece* take(std::size_t bytes, int stream);
  Piece* take_after_returns(std::size_t bytes, int stream);
  Piece* cut(Piece* piece, std::size_t bytes);
  void join(Piece* piece, Piece* next);
  void make_free(Piece* piece);
  Piece* new_segment(std::size_t bytes, int stream);
  Piece* segment_to_return(std::size_t wanted) const;
  void return_segment(Piece* piece);
  std::size_t sum_of_peaks() const;
  void charge(Category category, std::int64_t bytes);
  void mark_peak();
  void trim_locked();
  [[noreturn]] void fail_out_of_memory(std::size_t bytes, Category category) const;

  Device device_;
  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  std::set<Piece*, Smaller> free_;
  std::map<int, InUse> in_use_;  // by stream
  MemoryAccount account_;
  bool recording_ = false;
  std::vector<MemoryEvent> history_;
};

}  // namespace tessera
