#include "runtime/storage.h"

#include "runtime/context.h"

namespace tessera {

// Either a block of an allocator, given back on destruction, or somebody else's memory.
struct Storage::Block {
  std::shared_ptr<Allocator> allocator;
  Allocator::Block block;
  std::shared_ptr<const void> owner;

  Block(std::shared_ptr<Allocator> allocator, const Allocator::Block& block)
      : allocator(std::move(allocator)), block(block) {}
  Block(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner)
      : block{data, bytes}, owner(std::move(owner)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (allocator) allocator->release(block);
  }
};

Storage Storage::allocate(const std::shared_ptr<Allocator>& allocator, std::size_t bytes) {
  Storage storage;
  storage.block_ = std::make_shared<const Block>(
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
  storage.block_ =
      std::make_shared<const Block>(const_cast<std::byte*>(data), bytes, std::move(owner));
  return storage;
}

std::byte* Storage::data() const {
  return block_ ? block_->block.data : nullptr;
}
std::size_t Storage::bytes() const {
  return block_ ? block_->block.bytes : 0;
}
Device Storage::device() const {
  return block_ && block_->allocator ? block_->allocator->device() : Device{};
}

}  // namespace tessera
