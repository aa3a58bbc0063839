// Footprint: memory and traffic of one rank, by closed formulas.
//
// What the allocator and the communicators measure equals this, to the byte; docs/sharding.md
// derives the formulas. Nothing is run and nothing allocated, so a thousand ranks cost no more than
// two.
#pragma once

#include <cstdint>

#include "autograd/unit.h"
#include "sharding/plan/options.h"

namespace tessera {

struct Footprint {
  /// Bytes on this rank's device, of the runtime's categories of these names.
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t communication = 0;
  /// Bytes that this rank sends in one training step: parameters, gradients, the gradient's norm
  /// and the loss.
  std::int64_t bytes_sent = 0;
  /// What is offloaded: bytes in this rank's host memory.
  struct Host {
    std::int64_t parameters = 0;
    std::int64_t gradients = 0;
    std::int64_t optimizer = 0;
  } host;
};

/// With `options.offload` the device is a GPU (sharding/strategy/offload.h: options_on).
///
/// Bytes sent are those of a step that follows an update, when no slot holds anything. They are too
/// many, by gathers for backward, if a unit at both ends is trained at the end only and the buckets
/// behind its beginning are frozen: what a unit trains is known, not in which of its runs.
///
/// `optimizer_bytes` per trained element that a rank owns: 8 for AdamW's two f32 moments.
Footprint footprint_of(const Units& units, const ShardingOptions& options, int world_size, int rank,
                       std::int64_t optimizer_bytes = 8);

}  // namespace tessera
