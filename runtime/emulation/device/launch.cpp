#include "runtime/emulation/device/launch.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/early.h"
#include "runtime/emulation/device/function_name.h"
#include "runtime/emulation/device/held.h"
#include "runtime/emulation/device/sanitizers.h"

namespace tessera::emulation {
namespace {

std::mutex mutex;  // guards all below, and `block`

std::function<void()> end_of_launch_ahead;  // null: the next launch is not early

unsigned held = 0;
HeldLaunch held_launch;

/// Launches by kernel, threads per block, static and dynamic shared memory.
std::map<std::tuple<const void*, unsigned, std::size_t, std::size_t>, std::uint64_t> uses;

void record(const Launch& launch, Statistics before) {
  const Unobserved unobserved;
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  const std::size_t static_bytes = block.shared().static_bytes();
  ++uses[{launch.kernel, threads, static_bytes, launch.shared_bytes}];
  if (!lists_launches()) return;
  LaunchRecord entry{.kernel = function_name(launch.kernel),
                     .file = launch.file,
                     .blocks = launch.grid.x * launch.grid.y * launch.grid.z,
                     .threads = threads,
                     .static_bytes = static_bytes,
                     .dynamic_bytes = launch.shared_bytes,
                     .work = block.statistics};
  for (const Counter& counter : counters()) counter.of(entry.work) -= counter.of(before);
  list_launch(std::move(entry));
}

/// The first and last address of the calling thread's stack.
std::pair<std::uintptr_t, std::uintptr_t> host_stack() {
  thread_local const auto bounds = [] {
    pthread_attr_t attributes;
    void* begin = nullptr;
    std::size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
      return std::pair<std::uintptr_t, std::uintptr_t>{};
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    return std::pair(first, first + bytes);
  }();
  return bounds;
}

std::string text(dim3 extents) {
  return std::to_string(extents.x) + " x " + std::to_string(extents.y) + " x " +
         std::to_string(extents.z);
}

std::vector<unsigned> shuffled(std::size_t count) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[block.draw(static_cast<unsigned>(left))]);
  }
  return order;
}

void run_blocks(const Launch& launch, void (*body)(const void*), const void* arguments) {
  const dim3 grid = launch.grid;
  const unsigned across = grid.x / launch.cluster;
  const std::size_t count = static_cast<std::size_t>(across) * grid.y * grid.z;  // of clusters
  const Order order = launch.schedule.blocks;
  std::vector<unsigned> drawn;
  if (order == Order::shuffled) drawn = shuffled(count);
  const std::size_t late = (held + launch.cluster - 1) / launch.cluster;
  const std::size_t early = late > 0 && late < count ? count - late : count;
  if (early < count) {
    held_launch = {.early_blocks = static_cast<unsigned>(early) * launch.cluster};
  }
  for (std::size_t turn = 0; turn < count; ++turn) {
    std::size_t i = order == Order::reverse ? count - 1 - turn : turn;
    if (order == Order::shuffled) i = drawn[i];
    const uint3 first{static_cast<unsigned>(i % across) * launch.cluster,
                      static_cast<unsigned>(i / across % grid.y),
                      static_cast<unsigned>(i / across / grid.y)};
    const std::uint64_t before = block.statistics.warpgroup_products;
    block.run(first, body, arguments);
    if (early == count) continue;
    const std::uint64_t work = block.statistics.warpgroup_products - before;
    if (turn < early) {
      held_launch.early += work;
    } else {
      held_launch.longest_late = std::max(held_launch.longest_late, work / launch.cluster);
    }
  }
}

}  // namespace

void check(const Launch& launch) {
  const dim3 grid = launch.grid, threads = launch.block;
  const std::size_t count = static_cast<std::size_t>(threads.x) * threads.y * threads.z;
  if (count == 0 || threads.x > 1024 || threads.y > 1024 || threads.z > 64 || count > 1024) {
    throw Failure("a block of " + text(threads) +
                  " threads: at most 1024, at most 64 along z, and none is 0");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    throw Failure("a grid of " + text(grid) +
                  " blocks: at most 2^31 - 1 along x, 65535 along y and z, and none is 0");
  }
  if (launch.cluster < 1 || launch.cluster > kMostClusterBlocks || grid.x % launch.cluster != 0) {
    throw Failure("a grid of " + text(grid) + " blocks in clusters of " +
                  std::to_string(launch.cluster) +
                  ": at most 8 blocks, and the grid is a multiple along x");
  }
  if (launch.cluster > 1 &&
      (count % kWarpgroup != 0 || launch.cluster * count / kWarpSize > kMostClusterWarps)) {
    throw Failure("a cluster of " + std::to_string(launch.cluster) + " blocks of " +
                  std::to_string(count) +
                  " threads: the emulator takes whole warpgroups, at most 64 warps together");
  }
  const SharedMemoryLimits& limits = launch.limits;
  if (launch.shared_bytes > limits.block_bytes) {
    throw Failure("a launch with " + std::to_string(launch.shared_bytes) +
                  " bytes of shared memory: a block can have " +
                  std::to_string(limits.block_bytes));
  }
  if (launch.shared_bytes > limits.dynamic_bytes.value_or(kDefaultSharedBytes)) {
    throw Failure("a launch with " + std::to_string(launch.shared_bytes) +
                  " bytes of dynamic shared memory: the kernel can have " +
                  std::to_string(limits.dynamic_bytes.value_or(kDefaultSharedBytes)) +
                  "; ask for more with cudaFuncSetAttribute");
  }
}

void run(const Launch& launch, void (*body)(const void*), const void* arguments) {
  check(launch);
  const std::lock_guard lock(mutex);
  block.begin_grid(launch, std::exchange(end_of_launch_ahead, nullptr));
  struct End {  // also when a block fails
    const Launch& launch;
    Statistics before;
    ~End() {
      block.end_grid();
      record(launch, before);
    }
  } end{launch, block.statistics};
  run_blocks(launch, body, arguments);
}

void check_parameter(int number, const void* parameter, std::size_t bytes) {
  const auto [first, last] = host_stack();
  const auto* words = static_cast<const std::byte*>(parameter);
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, words + at, sizeof word);
    if (word >= first && word < last) {
      throw Failure("parameter " + std::to_string(number) + " of the kernel holds an address on " +
                    "the host thread's stack, at byte " + std::to_string(at) +
                    "; pass values or addresses of device memory");
    }
  }
}

void add_words(std::vector<std::uintptr_t>& words, const void* parameter, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(parameter);
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::memcpy(&words.emplace_back(), from + at, sizeof(std::uintptr_t));
  }
}

std::vector<KernelUse> kernel_uses() {
  const std::lock_guard lock(mutex);
  std::vector<KernelUse> list;
  for (const auto& [key, launches] : uses) {
    const auto& [kernel, threads, static_bytes, dynamic_bytes] = key;
    list.push_back({function_name(kernel), threads, static_bytes, dynamic_bytes, launches});
  }
  return list;
}

void start_event_list() {
  const std::lock_guard lock(mutex);
  block.events().start();
}

std::vector<KernelEvent> take_event_list() {
  const std::lock_guard lock(mutex);
  return block.events().take();
}

void begin_early(std::function<void()> end) {
  const std::lock_guard lock(mutex);
  end_of_launch_ahead = std::move(end);
}

void hold_multiprocessors(unsigned count) {
  const std::lock_guard lock(mutex);
  held = count;
}

HeldLaunch last_held_launch() {
  const std::lock_guard lock(mutex);
  return held_launch;
}

Statistics statistics() {
  const std::lock_guard lock(mutex);
  return block.statistics;
}

void reset_statistics() {
  const std::lock_guard lock(mutex);
  block.statistics = {};
}

}  // namespace tessera::emulation
