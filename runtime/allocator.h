// A caching allocator that accounts for every byte.
//
// Freed blocks are kept in a list per (stream, size class) and handed out again to the same stream:
// an in-order stream may reuse a block at once, because whatever still reads the old contents was
// queued before whatever writes the new ones. A block that another stream uses must be kept alive
// by its user until that stream's event has been waited on.
//
// Size classes are four per power of two (at most 25 % rounding), so the steps of a training run,
// which ask for the same sizes again and again, never reach the operating system after the first.
// The accounts count *requested* bytes, to which rounding and caching add nothing; `reserved` says
// what the cache really holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/category.h"
#include "runtime/device.h"

namespace tessera {

/// Where an allocator gets raw memory: the host's heap or a GPU's.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least 64-byte aligned; nullptr when there is none left.
  virtual std::byte* acquire(std::size_t bytes) = 0;
  virtual void release(std::byte* data, std::size_t bytes) = 0;

  /// What the cache does with a block, in the order of `stream`: from here on `bytes` of it are in
  /// use; nothing of it is. For tools that find whoever touches other bytes.
  virtual void lend(std::byte* data, std::size_t bytes, std::size_t block_bytes, int stream) = 0;
  virtual void take_back(std::byte* data, std::size_t block_bytes, int stream) = 0;
};

/// Memory that the host reads and writes: the address sanitizer knows what of it is in use.
class HostMemorySource : public MemorySource {
 public:
  void lend(std::byte* data, std::size_t bytes, std::size_t block_bytes, int stream) final;
  void take_back(std::byte* data, std::size_t block_bytes, int stream) final;
};

/// Pages of the host's heap.
std::unique_ptr<MemorySource> host_memory();

/// Live bytes now and at most, per category and in all.
struct MemoryAccount {
  struct Line {
    std::int64_t current = 0;
    std::int64_t peak = 0;
  };
  std::array<Line, kCategories> categories;
  Line total;
  /// Bytes taken from the source, in use or cached.
  std::int64_t reserved = 0;

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

  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  // as requested
    Category category = Category::other;
    int stream = 0;
  };

  /// Raises Error with the table of live bytes when the device has no memory left even after the
  /// cache was given back. A request of 0 bytes yields a null block.
  Block allocate(std::size_t bytes, Category category, int stream);
  void release(const Block& block);

  const Device& device() const { return device_; }
  MemoryAccount account() const;
  /// Sets every peak to the current value.
  void reset_peaks();
  /// Returns unused blocks to the source.
  void trim();

  /// Starts (or stops) recording; starting forgets earlier events.
  void record_history(bool on);
  std::vector<MemoryEvent> history() const;

  /// Bytes that a request really occupies: its size class.
  static std::size_t size_class(std::size_t bytes);

 private:
  void charge(Category category, std::int64_t bytes);
  void trim_locked();
  [[noreturn]] void fail_for_want_of(std::size_t bytes, Category category) const;

  Device device_;
  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, std::size_t>, std::vector<std::byte*>> free_;
  MemoryAccount account_;
  bool recording_ = false;
  std::vector<MemoryEvent> history_;
};

}  // namespace tessera
