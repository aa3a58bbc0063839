// OwnValues: the values that a rank contributes when buckets are gathered or filled.
//
// They are the masters themselves, unless the masters are offloaded (offload/host_values.h).
#pragma once

#include <memory>

#include "sharding/shard.h"
#include "sharding/strategy/group_resources.h"

namespace tessera {

class OwnValues {
 public:
  virtual ~OwnValues() = default;
  /// Memory for own values that are not windows into a buffer.
  virtual Tensor make(std::int64_t elements, DType dtype) = 0;
  /// Shard::copy of a shard that make() has made; undefined if the values are not copied.
  virtual Tensor copy_of(int bucket, int parameter) = 0;
  /// The masters hold new values, and so do the copies if they were written as well.
  virtual void masters_changed(Writes writes) = 0;
  /// Queues, on the communication stream, copies of this rank's part of a bucket to its place in
  /// `buffer`. Values that are windows into the buffer need no copy.
  virtual void fill_own_part(int bucket, const Tensor& buffer) = 0;
};

/// On the device, or on the host if the placement offloads masters.
std::unique_ptr<OwnValues> make_own_values(const GroupResources& resources);

}  // namespace tessera
