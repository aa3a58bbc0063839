#include "runtime/foreign_memory.h"

#include <utility>

#include "runtime/allocator_piece.h"
#include "runtime/context.h"

namespace tessera {
namespace {

/// Ends a storage's hold of foreign memory, as the deleter of its shared pointer.
struct EndOfForeign {
  Device device;
  std::shared_ptr<const void> owner;
  std::shared_ptr<Allocator> allocator;  // that is charged, or null
  Allocator::Block block{};

  void operator()(const void*) const {
    if (allocator != nullptr) Allocator::Piece::charge(*allocator, block, /*allocates=*/false);
  }
};

Storage borrow(const EndOfForeign& end, std::byte* data, std::size_t bytes) {
  return Storage::borrow(data, bytes, std::shared_ptr<const void>(data, end));
}

}  // namespace

Storage borrow_on_device(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner) {
  return borrow({.device = context().device(), .owner = std::move(owner)}, data, bytes);
}

Storage charge_on_device(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner) {
  const EndOfForeign end = {.device = context().device(),
                            .owner = std::move(owner),
                            .allocator = context().shared_allocator(),
                            .block = {data, bytes, current_category(), current_stream().id()}};
  Allocator::Piece::charge(*end.allocator, end.block, /*allocates=*/true);
  return borrow(end, data, bytes);
}

Device device_of_foreign(const std::shared_ptr<const void>& owner) {
  const auto* const end = std::get_deleter<EndOfForeign>(owner);
  return end == nullptr ? Device{} : end->device;
}

}  // namespace tessera
