#include "runtime/emulation/device/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/counted_addresses.h"
#include "runtime/emulation/device/sanitizers.h"
#include "runtime/emulation/device/warpgroup.h"

namespace tessera::emulation {
namespace {

constexpr std::size_t kLine = 1024;  // once around the 32 banks eight times: a swizzle's period
constexpr std::size_t kRedZone = 64;
constexpr std::size_t kCopyBytes = 16;  // of a cp.async
constexpr std::size_t kMostArrays = 256;
constexpr std::size_t kArenaBytes =
    kMostClusterBlocks * kMostSharedBytes + kMostArrays * (kRedZone + 2 * kLine);

}  // namespace

void SharedMemory::begin_grid(const Launch& launch) {
  dynamic_bytes_ = launch.shared_bytes;
  limits_ = launch.limits;
  most_static_bytes_ = 0;
  arrays_.reserve(kMostArrays);
  allocations_.reserve(kMostArrays);
  if (arena_ == nullptr && !kRacesAreWatched) {
    arena_.reset(static_cast<char*>(std::aligned_alloc(kLine, kArenaBytes)));
    if (arena_ == nullptr) throw Failure("no memory for a block's shared memory");
    poison(arena_.get(), kArenaBytes);
    const auto first = reinterpret_cast<std::uintptr_t>(arena_.get());
    shared_addresses.set(first, first + kArenaBytes);
  }
}

void SharedMemory::begin_block() {
  arrays_.clear();
  for (std::vector<Write>& writes : unfenced_) writes.clear();
  used_ = 0;
}

void SharedMemory::end_block() {
  if (arena_ != nullptr) poison(arena_.get(), used_);
  const Unobserved unobserved;
  for (char* allocation : allocations_) std::free(allocation);
  allocations_.clear();
}

// The thread sanitizer takes an array at the address of an earlier block's array for the same
// memory, used without order. A new allocation is new memory to it.
char* SharedMemory::reserve(std::size_t bytes, std::size_t remainder) {
  if (kRacesAreWatched) {
    const std::size_t whole = (bytes + remainder + kLine) / kLine * kLine;
    allocations_.push_back(static_cast<char*>(std::aligned_alloc(kLine, whole)));
    if (allocations_.back() == nullptr) block.fail("no memory for a block's shared memory");
    return allocations_.back() + remainder;
  }
  const std::size_t begin = (used_ + kRedZone + kLine - 1) / kLine * kLine + remainder;
  used_ = begin + bytes;
  return arena_.get() + begin;
}

std::size_t SharedMemory::static_bytes_of_block() const {
  std::size_t bytes = 0;
  for (const Array& array : arrays_) {
    if (array.tag != nullptr && array.rank == block.rank()) bytes += array.bytes;
  }
  return bytes;
}

char* SharedMemory::add(Array array, std::size_t remainder) {
  const Unobserved unobserved;
  const std::size_t static_bytes =
      static_bytes_of_block() + (array.tag != nullptr ? array.bytes : 0);
  most_static_bytes_ = std::max(most_static_bytes_, static_bytes);
  if (arrays_.size() == kMostArrays) block.fail("more than 256 arrays in shared memory");
  const auto fail = [&](const std::string& rule) {
    block.fail(rule + ": " + std::to_string(static_bytes) + " bytes in declarations and " +
               std::to_string(dynamic_bytes_) + " given at launch");
  };
  if (dynamic_bytes_ + static_bytes > limits_.block_bytes) {
    fail("more shared memory than a block of the GPU has");
  }
  const bool asked = limits_.dynamic_bytes.has_value();
  if (!asked && dynamic_bytes_ + static_bytes > kDefaultSharedBytes) {
    fail("more than 48 KiB of shared memory without cudaFuncSetAttribute");
  }
  array.memory = reserve(array.bytes, remainder);
  unpoison(array.memory, array.bytes);
  std::memset(array.memory, 0xff, array.bytes);  // NaN in f32, bf16 and f16; -1 in integers
  arrays_.push_back(std::move(array));
  return arrays_.back().memory;
}

void* SharedMemory::variable(const void* tag, std::size_t bytes, std::size_t alignment) {
  for (const Array& array : arrays_) {
    if (array.tag == tag && array.rank == block.rank()) return array.memory;
  }
  if (static_bytes_of_block() + bytes > kDefaultSharedBytes) {
    block.fail("more than 48 KiB of shared memory in declarations: ask for it at launch");
  }
  return add({.rank = block.rank(), .tag = tag, .offset = 0, .bytes = bytes, .memory = nullptr},
             alignment % kLine);
}

void* SharedMemory::piece(std::size_t offset, std::size_t bytes) {
  for (const Array& array : arrays_) {
    if (array.tag != nullptr || array.rank != block.rank()) continue;
    if (array.offset == offset && array.bytes == bytes) return array.memory;
    if (array.offset < offset + bytes && offset < array.offset + array.bytes) {
      block.fail("threads carve different arrays from the same shared memory");
    }
  }
  if (offset + bytes > dynamic_bytes_) {
    block.fail("the kernel carves " + std::to_string(offset + bytes) +
               " bytes of shared memory where the launch gave " + std::to_string(dynamic_bytes_));
  }
  return add(
      {.rank = block.rank(), .tag = nullptr, .offset = offset, .bytes = bytes, .memory = nullptr},
      offset % kLine);
}

void* SharedMemory::in_block(const void* data, unsigned rank) {
  const Array& own = array_of(data);
  for (const Array& array : arrays_) {
    if (array.rank != rank || array.tag != own.tag || array.offset != own.offset) continue;
    return array.memory + (static_cast<const char*>(data) - own.memory);
  }
  return nullptr;
}

bool SharedMemory::in_arena(const void* data) const {
  return shared_addresses.has(reinterpret_cast<std::uintptr_t>(data));
}

bool SharedMemory::contains(const void* data, std::size_t bytes) const {
  const char* first = static_cast<const char*>(data);
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    return first >= array.memory && first + bytes <= array.memory + array.bytes;
  });
}

SharedMemory::Array& SharedMemory::array_of(const void* data) {
  const char* const at = static_cast<const char*>(data);
  for (Array& array : arrays_) {
    if (at < array.memory || at >= array.memory + array.bytes) continue;
    return array;
  }
  block.fail("wgmma, a tile copy or another block takes an address outside shared memory");
}

std::size_t SharedMemory::offset_in(const Array& array, const void* data) {
  return static_cast<std::size_t>(static_cast<const char*>(data) - array.memory);
}

char* SharedMemory::view_of(Array& array) {
  if (array.engine_view.empty()) array.engine_view.assign(array.bytes, '\xff');
  return array.engine_view.data();
}

const void* SharedMemory::engine_view(const void* data) {
  const Unobserved unobserved;
  Array& array = array_of(data);
  return view_of(array) + offset_in(array, data);
}

void SharedMemory::show_to_engines(const void* data, std::size_t bytes) {
  const Unobserved unobserved;
  Array& array = array_of(data);
  const std::size_t first = offset_in(array, data), end = first + bytes;
  std::memcpy(view_of(array) + first, data, bytes);
  for (std::size_t i = first / kCopyBytes; i < array.copied.size() && i * kCopyBytes < end; ++i) {
    array.copied[i] = Copied::seen;
  }
}

void SharedMemory::note_write_for_engines(unsigned thread, const void* data, std::size_t bytes) {
  const Unobserved unobserved;
  if (thread >= unfenced_.size()) unfenced_.resize(thread + 1);
  unfenced_[thread].push_back({data, bytes});
}

void SharedMemory::show_writes_to_engines(unsigned thread) {
  if (thread >= unfenced_.size()) return;
  for (const Write& write : unfenced_[thread]) show_to_engines(write.data, write.bytes);
  unfenced_[thread].clear();
}

void SharedMemory::note_copy(const void* data, Copied state) {
  const Unobserved unobserved;
  Array& array = array_of(data);
  if (array.copied.empty()) array.copied.assign(array.bytes / kCopyBytes + 1, Copied::seen);
  array.copied[offset_in(array, data) / kCopyBytes] = state;
}

SharedMemory::Copied SharedMemory::copied(const void* data, std::size_t bytes) {
  const Array& array = array_of(data);
  if (array.copied.empty()) return Copied::seen;
  const auto first =
      array.copied.begin() + static_cast<std::ptrdiff_t>(offset_in(array, data) / kCopyBytes);
  return *std::max_element(first, first + static_cast<std::ptrdiff_t>(bytes / kCopyBytes));
}

void note_write_for_engines(const void* data, std::size_t bytes) {
  if (warpgroups_read(data, bytes)) {
    block.fail("a write to shared memory that a wgmma in flight still reads");
  }
  block.shared().note_write_for_engines(block.thread().number, data, bytes);
}

void fence_shared_for_engines() {
  block.shared().show_writes_to_engines(block.thread().number);
}

void show_to_engines(const void* data, std::size_t bytes) {
  block.shared().show_to_engines(data, bytes);
}

void* shared_variable(const void* tag, std::size_t bytes, std::size_t alignment) {
  return block.shared().variable(tag, bytes, alignment);
}

void* SharedMemoryCarver::take_bytes(std::size_t bytes) const {
  return block.shared().piece(offset_, bytes);
}

}  // namespace tessera::emulation
