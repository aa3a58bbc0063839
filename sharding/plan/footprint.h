// Footprint: memory and traffic of one rank, by closed formulas.
//
// The decisions come from the plan; the sums are formulas of this file. The allocator and the
// communicators measure the same numbers, to the byte. docs/sharding_cost.md derives the formulas.
// A footprint runs nothing and allocates nothing, so it costs no more for a thousand ranks than for
// two.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sharding/plan/plan.h"

namespace tessera {

struct Footprint {
  /// Bytes on this rank's device, in the runtime's categories of the same names.
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t communication = 0;
  /// Bytes that this rank sends in one training step: parameters, gradients, keys and values with their
  /// gradients (context parallelism), rows (tensor), activations with their gradients (pipeline), the
  /// gradient's norm, the loss, with counters also the loss of the routers and the counters, and the
  /// readings of a watched step.
  std::int64_t bytes_sent = 0;
  /// Bytes in this rank's host memory, if the device is a GPU.
  struct Host {
    std::int64_t parameters = 0;
    std::int64_t gradients = 0;
    std::int64_t optimizer = 0;
  } host;
};

/// Bytes of state that an optimizer keeps for an element of each trained parameter.
class StateBytes {
 public:
  /// Equally many for all: 8 for AdamW's two moments in f32.
  StateBytes(std::int64_t of_all) : of_all_(of_all) {}
  /// By the parameters' names.
  StateBytes(std::map<std::string, std::int64_t> of_each);

  /// No value if parameters differ.
  std::optional<std::int64_t> of_all() const { return of_all_; }
  /// Raises Error for a name that is not known.
  std::int64_t of(const Parameter& parameter) const;

 private:
  std::optional<std::int64_t> of_all_;
  std::map<std::string, std::int64_t> of_each_;
};

/// Bytes sent are those of a step that follows an update, when no slot holds a bucket. In one case
/// they count too many gathers for backward: a unit at both ends is trained only in its last run,
/// and the buckets after its first run are frozen. The plan knows which parameters a unit trains,
/// but not in which of its runs.
///
/// `state`: of the trained elements that a rank owns.
Footprint footprint_of(const Plan& plan, int rank, const StateBytes& state = 8);

/// The same for a plan of `world_size` ranks on one node of GPUs.
Footprint footprint_of(const Units& units, const ShardingOptions& options, int world_size, int rank,
                       const StateBytes& state = 8);

}  // namespace tessera
