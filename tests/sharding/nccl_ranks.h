// Ranks that talk through NCCL: in emulated builds, threads that own an emulated GPU each and a
// stand-in for the library that is stricter than it; on a machine with GPUs, as many ranks as GPUs.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>

#include "runtime/cuda/backend.h"
#include "sharding/comm/nccl/nccl.h"
#include "sharding/comm/threads/threads.h"
#include "tests/sharding/communicator_checks.h"
#include "tests/sharding/ranks.h"
#include "tests/support/device.h"
#include "tests/support/progress.h"
#include "tests/support/test_clock.h"

namespace tessera::test {

inline const NcclOptions kDeterministic = {.deterministic = true, .deadline = kSafetyLimit};

/// A deadline that a TestClock passes.
inline constexpr auto kShort = std::chrono::milliseconds(300);

#if defined(TESSERA_EMULATED)
inline emulation::DeviceOptions with_gpus(int count) {
  emulation::DeviceOptions options = emulation::device_options();
  options.devices = count;
  return options;
}
#endif

/// Calls `body` on every rank, all of which have a GPU. `control`: the deadline of the communicator
/// that compares calls.
inline void run_nccl(int ranks, const NcclOptions& options,
                     const std::function<void(Communicator&)>& body, int ranks_per_node = 0,
                     const Deadline& control = kSafetyLimit) {
  const auto with_nccl = [&](Communicator& world) { run_with_nccl(world, options, body); };
#if defined(TESSERA_EMULATED)
  const emulation::DeviceOptionsGuard guard(with_gpus(ranks));
#else
  ranks = std::min(ranks, cuda::device_count());
#endif
  run_ranks({.ranks = ranks,
             .device = device(),
             .threads = 1,
             .deadline = control,
             .communicator = CommunicatorKind::nccl,  // the ranks stand for processes
             .ranks_per_node = ranks_per_node},
            with_nccl);
}

/// Whether each of `ranks` ranks can have a GPU of its own. A test about a certain rank needs it.
inline bool has_gpus([[maybe_unused]] int ranks) {
#if defined(TESSERA_EMULATED)
  return true;
#else
  if (cuda::device_count() >= ranks) return true;
  WARN("skipped: the machine has fewer than " << ranks << " GPUs");
  return false;
#endif
}

}  // namespace tessera::test
