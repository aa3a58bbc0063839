// Parameters that are gathered only while units compute with them: ZeRO-3, FSDP, HSDP.
//
// A bucket is gathered into the slot that the plan gives it (sharding/plan/schedule.h). It stays
// there until another bucket needs the slot or the weights change. So the last buckets of forward
// are not gathered again. Outside open() and close() any use of a parameter raises Error.
//
// Three events keep the two streams in order:
//
//   ready      the gather into the slot has ended             open waits: computation may read
//   released   computation has stopped reading the slot       gather waits: it may overwrite
//   changed    the optimizer has written its masters          gather waits: it may read them
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/capture.h"
#include "sharding/strategy/own_values.h"
#include "sharding/strategy/parameter_store.h"

namespace tessera {

class GatheredParameters final : public ParameterStore {
 public:
  GatheredParameters(const GroupResources& resources, OwnValues& own_values);
  ~GatheredParameters() override;

  std::pair<Tensor, Tensor> make_own(int bucket, int parameter) override;
  void prefetch(int bucket, Direction direction) override;
  /// Raises Error if the bucket that is now in the slot is in use.
  void open(int bucket, Direction direction) override;
  void close(int bucket, bool again_in_backward) override;
  void masters_changed(int bucket, Writes writes, const Stream& writer) override;

 private:
  struct Slot {
    Tensor buffer;
    int bucket = -1;
    std::uint64_t generation = 0;  // of the weights that it holds
    int capture = 0;               // the capture that gathers it at every launch; 0: none
    bool open = false;
    Event ready, released;
  };

  const BucketLayout& bucket(int b) const { return resources_.buckets()[b]; }
  Slot& slot_of(int bucket) { return slots_[resources_.group.gather_slots.of_bucket[bucket]]; }
  bool holds(const Slot& slot, int bucket) const {
    return slot.bucket == bucket && slot.generation == generations_[bucket] &&
           slot.capture == current_capture();
  }
  void gather(int bucket, Direction direction);
  /// Copies of this rank's 1/k of a gathered bucket: out of the buffer, or back into it.
  Copies copies_out(int bucket, const Tensor& buffer) const;
  Copies copies_back(int bucket, const Tensor& buffer) const;

  const GroupResources resources_;
  OwnValues& own_values_;
  std::vector<Slot> slots_;
  std::vector<Tensors> kept_;  // Reshard::to_groups: by bucket, this rank's parts of the segments
  std::vector<std::uint64_t> generations_;  // per bucket
  std::vector<Event> changed_;              // per bucket
};

}  // namespace tessera
