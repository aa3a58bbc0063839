// A refcounted block of memory: what tensors are windows into.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/allocator.h"
#include "runtime/category.h"
#include "runtime/device.h"

namespace tessera {

class Storage {
 public:
  Storage() = default;

  /// `bytes` of uninitialized memory from the current context's allocator, charged to the current
  /// category and tied to the current stream.
  static Storage allocate(std::size_t bytes);

  /// The same in host memory: on a CPU context nothing else; on a GPU's, memory that the GPU copies
  /// from and to directly, charged to the context's host allocator.
  static Storage allocate_on_host(std::size_t bytes);

  /// A window on host memory that somebody else owns (a mapped file). `owner` is held as long as
  /// the storage lives; nothing is charged.
  static Storage borrow(const std::byte* data, std::size_t bytes,
                        std::shared_ptr<const void> owner);

  std::byte* data() const;
  std::size_t bytes() const;
  Device device() const;
  explicit operator bool() const { return block_ != nullptr; }
  /// How many handles share the block.
  long use_count() const { return block_.use_count(); }
  bool operator==(const Storage&) const = default;

 private:
  static Storage allocate(const std::shared_ptr<Allocator>& allocator, std::size_t bytes);

  struct Block;
  std::shared_ptr<const Block> block_;
};

}  // namespace tessera
