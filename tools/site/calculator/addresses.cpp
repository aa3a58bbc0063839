// Addresses of a dry run for the calculator: no memory lies behind them.
//
// WebAssembly has no memory that is reserved and not backed. A plan neither reads nor writes a tensor's
// elements; an access ends the program.
#include <cstdint>

#include "runtime/allocator.h"

namespace tessera {
namespace {

class Addresses final : public MemorySource {
 public:
  std::byte* acquire(std::size_t) override {
    next_ = (next_ + kDistance) % kRange;
    return reinterpret_cast<std::byte*>(kFirst + next_);
  }
  void release(std::byte*, std::size_t) override {}
  void mark_used(std::byte*, std::size_t, std::size_t, int) override {}
  void mark_unused(std::byte*, std::size_t, int) override {}

 private:
  static constexpr std::uintptr_t kDistance = 512, kRange = std::uintptr_t{1} << 30;
  /// Beyond all memory. Parts of a block begin at multiples of 512 bytes behind it, so none begins at 0.
  static constexpr std::uintptr_t kFirst = (~std::uintptr_t{0} >> 1) + 1 + 64;

  std::uintptr_t next_ = 0;
};

}  // namespace

std::unique_ptr<MemorySource> addresses_only(Writable) {
  return std::make_unique<Addresses>();
}

}  // namespace tessera
