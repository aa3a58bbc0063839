#include "runtime/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "runtime/block_history.h"
#include "runtime/check.h"
#include "runtime/out_of_memory.h"
#include "runtime/poison.h"

namespace tessera {
namespace {

// 64 bytes is a cache line and the widest vector register; 512 keeps tiny requests from crowding
// into one line shared by two threads.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallestBlock = 512;
constexpr std::size_t kMostBytes = std::min<std::uint64_t>(INT64_MAX, SIZE_MAX / 8 * 7);
// Kernels walk through large matrices by columns, where every row lies in pages of its own. With
// pages of 4 KB the CPU's table of pages would have too few entries.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

class HostMemory final : public HostMemorySource {
 public:
  std::byte* acquire(std::size_t bytes) override {
    if (bytes < kHugePage) {
      return static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
    }
    const std::size_t padded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* const data = std::aligned_alloc(kHugePage, padded);
    // Advice: a kernel without huge pages ignores it.
    if (data != nullptr) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data, std::size_t bytes) override {
    unpoison(data, bytes);  // the heap keeps its own marks
    std::free(data);
  }
};

std::string table_of(const MemoryAccount& account) {
  std::string table;
  for (int i = 0; i < kCategories; ++i) {
    const auto& line = account.categories[i];
    if (line.current > 0) table += fmt::format(" {} {};", enum_names<Category>()[i], line.current);
  }
  return table.empty() ? " none;" : table;
}

}  // namespace

std::unique_ptr<MemorySource> host_memory() {
  return std::make_unique<HostMemory>();
}

void HostMemorySource::mark_used(std::byte* data, std::size_t bytes, std::size_t block_bytes, int) {
  unpoison_first(data, bytes, block_bytes);
}

void HostMemorySource::mark_unused(std::byte* data, std::size_t block_bytes, int) {
  poison(data, block_bytes);
}

Allocator::Allocator(Device device, std::unique_ptr<MemorySource> source)
    : device_(device), source_(std::move(source)) {}

Allocator::~Allocator() {
  trim_locked();
}

std::size_t Allocator::size_class(std::size_t bytes) {
  if (bytes <= kSmallestBlock) return kSmallestBlock;
  const std::size_t quarter = std::bit_floor(bytes - 1) / 4;  // of the power of two below
  return (bytes + quarter - 1) / quarter * quarter;
}

Allocator::Block Allocator::allocate(std::size_t bytes, Category category, int stream) {
  if (bytes == 0) return {nullptr, 0, category, stream};
  const std::lock_guard lock(mutex_);
  // Larger requests would overflow the account and the rounding to a size class.
  if (bytes > kMostBytes) fail_out_of_memory(bytes, category);
  const std::size_t reserved = size_class(bytes);
  std::byte* data = nullptr;
  if (const auto found = free_.find({stream, reserved});
      found != free_.end() && !found->second.empty()) {
    data = found->second.back();
    found->second.pop_back();
  } else {
    data = source_->acquire(reserved);
    if (data == nullptr) {
      trim_locked();
      data = source_->acquire(reserved);
    }
    if (data == nullptr) fail_out_of_memory(bytes, category);
    account_.reserved += static_cast<std::int64_t>(reserved);
  }
  source_->mark_used(data, bytes, reserved, stream);
  charge(category, static_cast<std::int64_t>(bytes));
  const Block block = {data, bytes, category, stream};
  note_block(*this, block, /*allocates=*/true);
  return block;
}

void Allocator::fail_out_of_memory(std::size_t bytes, Category category) const {
  throw OutOfMemory(
      fmt::format("out of memory on {}: {} bytes requested as {}; live bytes:{} choose a smaller "
                  "batch, a shorter sequence or activation checkpointing",
                  to_string(device_), bytes, name_of(category), table_of(account_)),
      account_.total.current);
}

void Allocator::release(const Block& block) {
  if (block.data == nullptr) return;
  const std::lock_guard lock(mutex_);
  charge(block.category, -static_cast<std::int64_t>(block.bytes));
  note_block(*this, block, /*allocates=*/false);
  const std::size_t reserved = size_class(block.bytes);
  source_->mark_unused(block.data, reserved, block.stream);
  free_[{block.stream, reserved}].push_back(block.data);
}

void Allocator::charge(Category category, std::int64_t bytes) {
  auto& line = account_.categories[static_cast<int>(category)];
  line.current += bytes;
  line.peak = std::max(line.peak, line.current);
  account_.total.current += bytes;
  if (account_.total.current > account_.total.peak) mark_peak();
  if (recording_) history_.push_back({category, bytes, account_.total.current});
}

void Allocator::mark_peak() {
  account_.total.peak = account_.total.at_peak = account_.total.current;
  for (auto& line : account_.categories) line.at_peak = line.current;
}

MemoryAccount Allocator::account() const {
  const std::lock_guard lock(mutex_);
  return account_;
}

void Allocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (auto& line : account_.categories) line.peak = line.current;
  mark_peak();
}

void Allocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void Allocator::trim_locked() {
  for (auto& [key, blocks] : free_) {
    for (std::byte* data : blocks) source_->release(data, key.second);
    account_.reserved -= static_cast<std::int64_t>(key.second * blocks.size());
  }
  free_.clear();
}

void Allocator::record_history(bool on) {
  const std::lock_guard lock(mutex_);
  if (on) history_.clear();
  recording_ = on;
}

std::vector<MemoryEvent> Allocator::history() const {
  const std::lock_guard lock(mutex_);
  return history_;
}

}  // namespace tessera
