// A refcounted block of memory that tensors are views of.
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

  /// The same in host memory. With a GPU's context it is memory that the GPU copies from and to
  /// directly, charged to the context's host allocator. With a CPU context it is allocate().
  static Storage allocate_on_host(std::size_t bytes);

  /// Borrows host memory, such as a mapped file, and charges nothing. The storage keeps `owner`
  /// alive.
  static Storage borrow(const std::byte* data, std::size_t bytes,
                        std::shared_ptr<const void> owner);

  std::byte* data() const;
  std::size_t bytes() const;
  Device device() const;
  explicit operator bool() const { return memory_ != nullptr; }
  /// The number of handles that share the memory.
  long use_count() const { return memory_.use_count(); }
  bool operator==(const Storage&) const = default;

 private:
  static Storage allocate(const std::shared_ptr<Allocator>& allocator, std::size_t bytes);

  struct Memory;
  std::shared_ptr<const Memory> memory_;
};

}  // namespace tessera
