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
  Allocator::Block block;
  std::shared_ptr<Allocator> allocator = nullptr;  // that is charged

  void operator()(const void*) const {
    if (allocator != nullptr) Allocator::Piece::charge(*allocator, block, /*allocates=*/false);
  }
};

}  // namespace

Storage borrow_on_device(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner,
                         Charged charged) {
  EndOfForeign end = {.device = context().device(),
                      .owner = std::move(owner),
                      .block = {data, bytes, current_category(), current_stream().id()}};
  if (charged == Charged::yes) {
    end.allocator = context().shared_allocator();
    Allocator::Piece::charge(*end.allocator, end.block, /*allocates=*/true);
  }
  return Storage::borrow(data, bytes, std::shared_ptr<const void>(data, std::move(end)));
}

Device device_of_foreign(const std::shared_ptr<const void>& owner) {
  const auto* const end = std::get_deleter<EndOfForeign>(owner);
  return end == nullptr ? Device{} : end->device;
}

}  // namespace tessera
