// Addresses of a dry run in WebAssembly, where memory is 2 GiB and all of it is backed.
#include <cstdlib>

#include "runtime/allocator.h"

namespace tessera {
namespace {

/// All blocks share one piece of zeros, each with an address of its own. A dry run reads token ids, and
/// writes nothing. Longer blocks reach beyond the zeros, and the largest beyond all memory.
class Addresses final : public MemorySource {
 public:
  std::byte* acquire(std::size_t) override {
    next_ = (next_ + kDistance) % kZeros;
    return zeros() + next_;
  }
  void release(std::byte*, std::size_t) override {}
  void mark_used(std::byte*, std::size_t, std::size_t, int) override {}
  void mark_unused(std::byte*, std::size_t, int) override {}

 private:
  static constexpr std::size_t kZeros = std::size_t{16} << 20, kDistance = 64;

  static std::byte* zeros() {
    static std::byte* const data = static_cast<std::byte*>(std::calloc(2, kZeros));
    return data;
  }

  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<MemorySource> addresses_only(Writable) {
  return std::make_unique<Addresses>();
}

}  // namespace tessera
