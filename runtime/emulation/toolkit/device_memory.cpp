#include "runtime/emulation/toolkit/device_memory.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/emulation/device/accesses.h"
#include "runtime/poison.h"

namespace tessera::emulation {

namespace {

constexpr std::size_t kPage = 4096;
/// Address space. A page takes memory once it is touched.
constexpr std::size_t kArenaBytes = std::size_t{64} << 30;
constexpr std::size_t kMostDevices = 16;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// The signal handler reads these at any time, so they never move.
struct Range {
  std::byte* begin;
  bool open;
};
Range ranges[kMostDevices];
bool before_wait;  // an early launch runs that has not waited for the launch ahead
struct sigaction next_handler;

/// Explains a fault in device memory, then lets the next handler (the sanitizer's, the test runner's)
/// see the fault again.
void explain_fault(int signal, siginfo_t* info, void*) {
  const auto* const address = static_cast<std::byte*>(info->si_addr);
  bool working = false;
  for (const Range& range : ranges) working = working || range.open;
  for (std::size_t device = 0; device < kMostDevices; ++device) {
    const std::byte* const begin = ranges[device].begin;
    if (begin == nullptr || address < begin || address >= begin + kArenaBytes) continue;
    char text[200];
    const int length =
        std::snprintf(text, sizeof text, "emulated device: %s memory of device %zu (at %p)\n",
                      before_wait ? "a kernel that has not waited for the launch ahead touches"
                      : working   ? "work on another device touches"
                                  : "the host touches",
                      device, info->si_addr);
    (void)!write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  }
  sigaction(signal, &next_handler, nullptr);
}

/// Test runners install their own handler for each test. This one is installed in front of it again.
void handle_faults() {
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == explain_fault) return;
  next_handler = current;
  struct sigaction mine {};
  mine.sa_sigaction = explain_fault;
  mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &mine, nullptr);
}

}  // namespace

DeviceMemory::Arena& DeviceMemory::arena(int device) {
  while (arenas_.size() <= static_cast<std::size_t>(device)) {
    void* const range =
        mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED || arenas_.size() == kMostDevices) std::abort();
    madvise(range, kArenaBytes, MADV_HUGEPAGE);  // fewer pages to open and close
    add_global_memory(range, kArenaBytes);
    auto* const begin = static_cast<std::byte*>(range);
    ranges[arenas_.size()].begin = begin;
    arenas_.push_back(std::make_unique<Arena>(Arena{begin, begin, begin, begin}));
  }
  return *arenas_[static_cast<std::size_t>(device)];
}

/// The first gap after the cursor. Freed addresses are not handed out again until all others have
/// been used, so a late access to a freed block faults.
std::byte* DeviceMemory::place_for(const Arena& arena, std::size_t bytes) const {
  const std::size_t wanted = kPage + whole_pages(bytes) + kPage;  // untouchable on both sides
  for (std::byte* at : {arena.cursor, arena.begin}) {
    for (auto next = blocks_.lower_bound(at); at + wanted <= arena.begin + kArenaBytes; ++next) {
      const bool last = next == blocks_.end() || next->first >= arena.begin + kArenaBytes;
      if (last || at + wanted <= next->first) return at + kPage;
      at = next->first + whole_pages(next->second.bytes);
    }
  }
  return nullptr;
}

void* DeviceMemory::allocate(int device, std::size_t bytes, std::size_t limit) {
  handle_faults();
  Arena& arena = this->arena(device);
  if (bytes > limit || arena.live_bytes > limit - bytes) return nullptr;
  std::byte* const data = place_for(arena, bytes);
  if (data == nullptr) return nullptr;
  blocks_.emplace(data, Block{data, bytes, device, ++allocated_});
  arena.live_bytes += bytes;
  arena.cursor = data + whole_pages(bytes);
  arena.top = std::max(arena.top, arena.cursor);
  unpoison(data, bytes);
  poison(data - kPage, kPage);
  poison(data + bytes, whole_pages(bytes) - bytes + kPage);
  mprotect(data, whole_pages(bytes), PROT_READ | PROT_WRITE);
  std::memset(data, 0xff, bytes);
  mprotect(data, whole_pages(bytes), PROT_NONE);
  return data;
}

void DeviceMemory::release(void* data) {
  const auto found = blocks_.find(static_cast<std::byte*>(data));
  const Block block = found->second;
  arena(block.device).live_bytes -= block.bytes;
  blocks_.erase(found);
  poison(data, block.bytes);
  madvise(data, whole_pages(block.bytes), MADV_DONTNEED);
}

const DeviceMemory::Block* DeviceMemory::find(const void* data) const {
  const auto* const address = static_cast<const std::byte*>(data);
  auto after = blocks_.upper_bound(const_cast<std::byte*>(address));
  if (after == blocks_.begin()) return nullptr;
  const Block& block = (--after)->second;
  return address < block.data + block.bytes ? &block : nullptr;
}

bool DeviceMemory::covers(const void* data) const {
  for (const auto& arena : arenas_) {
    if (data >= arena->begin && data < arena->begin + kArenaBytes) return true;
  }
  return false;
}

std::size_t DeviceMemory::bytes() const {
  std::size_t sum = 0;
  for (const auto& arena : arenas_) sum += arena->live_bytes;
  return sum;
}

void DeviceMemory::open(unsigned devices, bool of_early_launch) {
  handle_faults();
  before_wait = of_early_launch;
  for (std::size_t device = 0; device < arenas_.size(); ++device) {
    Arena& arena = *arenas_[device];
    const bool wanted = (devices >> device & 1) != 0;
    ranges[device].open = wanted;
    if (wanted ? arena.open_to == arena.top : arena.open_to == arena.begin) continue;
    mprotect(arena.begin, static_cast<std::size_t>(arena.top - arena.begin),
             wanted ? PROT_READ | PROT_WRITE : PROT_NONE);
    arena.open_to = wanted ? arena.top : arena.begin;
  }
}

}  // namespace tessera::emulation
