#include <sys/mman.h>

#include "runtime/allocator.h"

namespace tessera {
namespace {

class Addresses final : public MemorySource {
 public:
  explicit Addresses(Writable writable)
      : protection_(writable == Writable::yes ? PROT_READ | PROT_WRITE : PROT_READ) {}

  std::byte* acquire(std::size_t bytes) override {
    constexpr int kUnbacked = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const data = mmap(nullptr, bytes, protection_, kUnbacked, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
  }
  void release(std::byte* data, std::size_t bytes) override { munmap(data, bytes); }
  void mark_used(std::byte*, std::size_t, std::size_t, int) override {}
  void mark_unused(std::byte*, std::size_t, int) override {}

 private:
  const int protection_;
};

}  // namespace

std::unique_ptr<MemorySource> addresses_only(Writable writable) {
  return std::make_unique<Addresses>(writable);
}

}  // namespace tessera
