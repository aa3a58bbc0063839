// ParameterStore: where parameters are while units compute with them.
//
// The masters lie in the shards. Units compute with whole parameters in the compute dtype. These
// either stay on every rank (DDP, ZeRO-1 and 2: resident_parameters.h) or are gathered for as long
// as a unit needs them (ZeRO-3, FSDP, HSDP: gathered_parameters.h).
#pragma once

#include <memory>
#include <utility>

#include "sharding/strategy/own_values.h"

namespace tessera {

enum class Direction { forward, backward };

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  /// Memory for this rank's own part of a parameter: Shard::data, flat, in the dtype of the plan,
  /// and Shard::copy.
  virtual std::pair<Tensor, Tensor> make_own(int bucket, int parameter) = 0;
  /// Starts to gather a bucket if its memory is free.
  virtual void prefetch(int bucket, Direction direction) = 0;
  /// Unshards a bucket and opens its parameters' windows.
  virtual void open(int bucket, Direction direction) = 0;
  /// Closes the windows and reshards. `again_in_backward`: a backward pass will need the bucket.
  virtual void close(int bucket, bool again_in_backward) = 0;
  /// Work that is queued on `writer` gives the bucket's masters new values, and the copies if it writes them
  /// as well.
  virtual void masters_changed(int bucket, Writes writes, const Stream& writer) = 0;
};

/// Resident or gathered, as the placement says. `own_values` must outlive the store.
std::unique_ptr<ParameterStore> make_parameter_store(const GroupResources& resources,
                                                     OwnValues& own_values);

}  // namespace tessera
