#include "runtime/storage.h"

#include "runtime/context.h"
#include "runtime/foreign_memory.h"

namespace tessera {

// Owns an allocator's block, which it releases on destruction, or borrows external memory.
struct Storage::Memory {
  std::shared_ptr<Allocator> allocator;
  Allocator::Block block;
  std::shared_ptr<const void> owner;

  Memory(std::shared_ptr<Allocator> allocator, const Allocator::Block& block)
      : allocator(std::move(allocator)), block(block) {}
  Memory(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner)
      : block{data, bytes}, owner(std::move(owner)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (allocator) allocator->release(block);
  }
};

Storage Storage::allocate(const std::shared_ptr<Allocator>& allocator, std::size_t bytes) {
  Storage storage;
  storage.memory_ = std::make_shared<const Memory>(
      allocator, allocator->allocate(bytes, current_category(), current_stream().id()));
  return storage;
}

Storage Storage::allocate(std::size_t bytes) {
  return allocate(context().shared_allocator(), bytes);
}

Storage Storage::allocate_on_host(std::size_t bytes) {
  return allocate(context().shared_host_allocator(), bytes);
}

Storage Storage::borrow(const std::byte* data, std::size_t bytes,
                        std::shared_ptr<const void> owner) {
  Storage storage;
  storage.memory_ =
      std::make_shared<const Memory>(const_cast<std::byte*>(data), bytes, std::move(owner));
  return storage;
}

std::byte* Storage::data() const {
  return memory_ ? memory_->block.data : nullptr;
}
std::size_t Storage::bytes() const {
  return memory_ ? memory_->block.bytes : 0;
}
Device Storage::device() const {
  if (!memory_) return {};
  return memory_->allocator ? memory_->allocator->device() : device_of_foreign(memory_->owner);
}

}  // namespace tessera
