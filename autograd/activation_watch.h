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
  /// Readings for each of these units, which must outlive the watch.
  explicit ActivationWatch(const Units& units);

  /// f32 [units, 2]: the largest magnitude in the residual stream behind the unit, and the largest attention
  /// logit; 0 where the unit has none.
  const Tensor& largest() const { return largest_; }
  /// i64 [units, 2]: the sum of add_router_entropy; 0 without a router.
  const Tensor& entropies() const { return entropies_; }

  /// `unit` runs until leave().
  void enter(const Unit& unit) { unit_ = number_.at(&unit); }
  /// `output` is its result: [B, T, width], or [rows, width] on ranks that share out rows. A loss, of one
  /// dimension, adds nothing.
  void leave(const Tensor& output);
  void attention(const Heads& q, const Heads& k, float scale, const Tensor& first_key);
  void router(const Tensor& logits);

 private:
  static constexpr std::int64_t kNone = -1;

  /// One number of `largest`, [1].
  Tensor reading(std::int64_t column) const;

  std::map<const Unit*, std::int64_t> number_;
  std::int64_t unit_ = kNone;
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
