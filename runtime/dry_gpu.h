// The place of a GPU in a dry run, and the work of its host.
//
// A dry run on kDryGpu takes the CPU's kernels, and has the two memories of a GPU's rank: the device's
// and the host's (Tensor::empty_on_host). So offloaded state is counted where it would lie, without a
// GPU. Copies between the two memories and the host's own work are entries of the log.
#pragma once

#include "runtime/device.h"
#include "runtime/stream_log.h"

namespace tessera {

inline constexpr Device kDryGpu{.type = DeviceType::cpu, .index = 1};

/// `bytes` that are copied between the device's and the host's memory.
inline Work host_copy(double bytes) {
  return {.kind = Work::Kind::transfer, .amount = bytes, .rounds = 1, .ranks = 0};
}

/// `bytes` of the host's memory that its CPU reads or writes.
inline Work host_memory_work(double bytes) {
  return {.kind = Work::Kind::memory, .amount = bytes, .ranks = 0};
}

/// One of the two above?
inline bool is_of_host(const Work& work) {
  return work.ranks == 0;
}

}  // namespace tessera
