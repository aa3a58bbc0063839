// ActivationWatch: the largest activations of a model's units in the passes of a watched step.
//
// In the scope of a watch Unit::run says which unit runs, and attention and routers add to that unit's
// readings (kernels/watch/op.h). Everything stays on the device. A unit that runs again in backward is not
// seen again. Without a watch a unit, an attention layer and a router each ask the context once.
#pragma once

#include <cstdint>
#include <map>

#include "autograd/unit.h"
#include "kernels/attention/op.h"
#include "runtime/tensor.h"

namespace tessera {

class ActivationWatch {
 public:
  /// Readings for each of these units, which must outlive the watch. Attention has so many heads of queries.
  ActivationWatch(const Units& units, std::int64_t heads);

  /// f32 [units, 1 + heads]: the largest magnitude in the residual stream behind the unit, and the largest
  /// attention logit of each head; 0 where the unit has none. A tensor-parallel rank writes its heads'.
  const Tensor& largest() const { return largest_; }
  /// i64 [units, 2]: the sum of add_router_entropy; 0 without a router.
  const Tensor& entropies() const { return entropies_; }

  /// `unit` runs until leave().
  void enter(const Unit& unit);
  /// `output` is its result: [B, T, width], or [rows, width] on ranks that share out rows. A loss, of one
  /// dimension, adds nothing.
  void leave(const Tensor& output);
  /// `first_head`: that of `q` among this rank's heads.
  void attention(const Heads& q, const Heads& k, float scale, const Tensor& first_key,
                 std::int64_t first_head = 0);
  void router(const Tensor& logits);

 private:
  static constexpr std::int64_t kNone = -1;

  /// `count` numbers of the unit's row of `largest`.
  Tensor readings(std::int64_t column, std::int64_t count) const;

  std::map<const Unit*, std::int64_t> number_;
  std::int64_t heads_;
  /// The unit that runs, and the first of this rank's heads in it.
  std::int64_t unit_ = kNone, first_head_ = 0;
  Tensor largest_, entropies_;
};

/// That of the current context, or null.
ActivationWatch* activation_watch();

/// Units that run in the current context during the scope are watched.
class ActivationWatchScope {
 public:
  explicit ActivationWatchScope(ActivationWatch& watch);
  ~ActivationWatchScope();
  ActivationWatchScope(const ActivationWatchScope&) = delete;
  ActivationWatchScope& operator=(const ActivationWatchScope&) = delete;

 private:
  ActivationWatch* previous_;
};

}  // namespace tessera
