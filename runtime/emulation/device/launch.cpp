#include "runtime/emulation/device/launch.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/emulation/device/block.h"

namespace tessera::emulation {
namespace {

std::mutex mutex;  // of `block`

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
  const std::size_t count = static_cast<std::size_t>(grid.x) * grid.y * grid.z;
  const Order order = launch.schedule.blocks;
  std::vector<unsigned> drawn;
  if (order == Order::shuffled) drawn = shuffled(count);
  for (std::size_t turn = 0; turn < count; ++turn) {
    std::size_t i = order == Order::reverse ? count - 1 - turn : turn;
    if (order == Order::shuffled) i = drawn[i];
    const uint3 index{static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                      static_cast<unsigned>(i / grid.x / grid.y)};
    block.run(index, body, arguments);
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
  if (launch.shared_bytes > kSharedBytes) {
    throw Failure("a launch with " + std::to_string(launch.shared_bytes) +
                  " bytes of shared memory: a block can have " + std::to_string(kSharedBytes));
  }
}

void run(const Launch& launch, void (*body)(const void*), const void* arguments) {
  check(launch);
  const std::lock_guard lock(mutex);
  block.begin_grid(launch.grid, launch.block, launch.shared_bytes, launch.schedule);
  struct End {  // also when a block fails
    ~End() { block.end_grid(); }
  } end;
  run_blocks(launch, body, arguments);
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
