#include "runtime/emulation/device/threads.h"

#include <algorithm>

#include "runtime/emulation/device/atomics.h"
#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/coordinates.h"
#include "runtime/emulation/device/sanitizers.h"

namespace tessera::emulation {
namespace {

// Points of order, one for each of 64 blocks that run after one another.
char block_fences[64][8];

constexpr std::size_t kMostAtomics = 64;

}  // namespace

// The rule of C++ for fences: a fence before a relaxed write synchronizes with a fence after a
// relaxed read of the same variable.
void begin_atomic(void* address) {
  ++block.statistics.atomics;
  if (block.thread().has_fenced) publish(address);
}

void end_atomic(void* address) {
  std::vector<void*>& used = block.thread().atomics;
  if (std::find(used.begin(), used.end(), address) != used.end()) return;
  if (used.size() == kMostAtomics) return acquire(address);  // never report a false race
  const Unobserved unobserved;
  used.push_back(address);
}

void fence_device() {
  Thread& thread = block.thread();
  for (void* address : thread.atomics) acquire(address);
  thread.atomics.clear();
  thread.has_fenced = true;
}

void fence_block() {
  char* point = block_fences[(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) % 64];
  acquire(point);
  publish(point);
}

void wait_for_launch_ahead(const Site& site) {
  block.wait_for_launch_ahead(site);
}

unsigned lane() {
  return block.lane();
}

int synchronize_block(const char* kind, bool predicate, const Site& site) {
  return block.synchronize(kind, predicate, site);
}

void synchronize_warp(unsigned mask, const Site& site) {
  block.collective(
      mask, "__syncwarp", nullptr, [](void* const*) {}, true, site);
}

unsigned vote(unsigned mask, bool predicate, const char* kind, const Site& site) {
  struct Operands {
    bool predicate;
    unsigned ballot;
  } operands{predicate, 0};
  const auto count = [](void* const* lanes) {
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      const auto* voter = static_cast<const Operands*>(lanes[lane]);
      if (voter != nullptr && voter->predicate) ballot |= 1u << lane;
    }
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if (lanes[lane] != nullptr) static_cast<Operands*>(lanes[lane])->ballot = ballot;
    }
  };
  block.collective(mask, kind, &operands, count, false, site);
  return operands.ballot;
}

std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned source, const char* kind,
                       const Site& site) {
  struct Operands {
    std::uint64_t value, result;
    unsigned source;
  } operands{value, 0, source};
  if ((mask >> source & 1u) == 0) {
    block.fail(
        std::string(kind) + " reads lane " + std::to_string(source) + ", which is not in the mask",
        site);
  }
  const auto hand_over = [](void* const* lanes) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if (lanes[lane] == nullptr) continue;
      auto* to = static_cast<Operands*>(lanes[lane]);
      to->result = static_cast<const Operands*>(lanes[to->source])->value;
    }
  };
  block.collective(mask, kind, &operands, hand_over, false, site);
  return operands.result;
}

unsigned first_lane(int width, const char* kind, const Site& site) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    block.fail(std::string(kind) + ": the width " + std::to_string(width) +
                   " is not a power of two up to 32",
               site);
  }
  return block.lane() & ~static_cast<unsigned>(width - 1);
}

}  // namespace tessera::emulation
