// Parameters that are whole on every rank at all times: single, DDP, ZeRO-1, ZeRO-2.
//
// Masters of the compute dtype are windows into the whole buffers, and an update is in place.
// Otherwise the buffers hold a copy of the masters in the compute dtype or in 8 bits, which the optimizer
// writes with them. If a rank owns slices (ZeRO-1 and 2), the slices are gathered after each update,
// bucket by bucket, while the next forward pass begins.
#pragma once

#include <optional>
#include <vector>

#include "sharding/strategy/own_values.h"
#include "sharding/strategy/parameter_store.h"

namespace tessera {

class ResidentParameters final : public ParameterStore {
 public:
  ResidentParameters(const GroupResources& resources, OwnValues& own_values);
  ~ResidentParameters() override;

  std::pair<Tensor, Tensor> make_own(int bucket, int parameter) override;
  void prefetch(int, Direction) override {}
  /// The windows are open already; computation waits for the bucket's values.
  void open(int bucket, Direction direction) override;
  void close(int, bool) override {}
  void masters_changed(int bucket, Writes writes, const Stream& writer) override;

 private:
  struct Whole {
    Tensor buffer;
    std::optional<Event> updated;  // the optimizer has written it on the update stream
    std::optional<Event> current;  // the buffer holds the masters' values
  };

  const GroupResources resources_;
  OwnValues& own_values_;
  std::vector<Whole> wholes_;  // per bucket
};

}  // namespace tessera
