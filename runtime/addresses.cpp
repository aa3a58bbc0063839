#include <sys/mman.h>

#include <utility>
#include <vector>

#include "runtime/allocator.h"

namespace tessera {
namespace {

std::byte* map(std::size_t bytes, int protection) {
  constexpr int kUnbacked = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const data = mmap(nullptr, bytes, protection, kUnbacked, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

class Unmarked : public MemorySource {
 public:
  void mark_used(std::byte*, std::size_t, std::size_t, int) final {}
  void mark_unused(std::byte*, std::size_t, int) final {}
};

class WritableAddresses final : public Unmarked {
 public:
  std::byte* acquire(std::size_t bytes) override { return map(bytes, PROT_READ | PROT_WRITE); }
  void release(std::byte* data, std::size_t bytes) override { munmap(data, bytes); }
};

/// All segments overlap in one mapping, since their bytes are equal. A mapping for each would take a third of
/// a plan's time. Segments begin at different addresses, up to a number of them.
class Zeros final : public Unmarked {
 public:
  ~Zeros() override {
    for (const auto& [data, bytes] : mappings_) munmap(data, bytes);
  }

  std::byte* acquire(std::size_t bytes) override {
    if (mappings_.empty() || bytes > mappings_.back().second - kRange) {
      std::byte* const data = map(bytes + kRange, PROT_READ);
      if (data == nullptr) return nullptr;
      mappings_.emplace_back(data, bytes + kRange);
    }
    next_ = (next_ + kDistance) % kRange;
    return mappings_.back().first + next_;
  }
  void release(std::byte*, std::size_t) override {}  // others may overlap

 private:
  static constexpr std::size_t kDistance = 512, kRange = std::size_t{16} << 20;

  std::vector<std::pair<std::byte*, std::size_t>> mappings_;  // each longer than those before it
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<MemorySource> addresses_only(Writable writable) {
  if (writable == Writable::yes) return std::make_unique<WritableAddresses>();
  return std::make_unique<Zeros>();
}

}  // namespace tessera
