// Strategy: who owns which part of the parameters, and when parts become whole.
//
// Five hooks, called around every unit, are all that a strategy adds to training. Then a step is
//
//   start_step();  for every micro-batch { forward; backward; finish_backward(); }
//   optimizer updates shards();  weights_changed();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/unit.h"
#include "kernels/gradient_norm/op.h"
#include "sharding/comm/communicator.h"
#include "sharding/plan/options.h"
#include "sharding/shard.h"

namespace tessera {

class Strategy : public UnitHooks, public ShardedParameters {
 public:
  /// A micro-batch's backward pass has ended. After the step's last, every reduction has landed in
  /// the shards' gradients.
  virtual void finish_backward() = 0;

  /// Forgets the last step's gradients: the next contribution overwrites.
  virtual void start_step() = 0;
  /// The masters hold new values, which every later use of the parameters must see.
  virtual void weights_changed() = 0;

  /// The norm of the whole gradient, on the device; every rank gets the same bits. A collective.
  virtual GradientNorm gradient_norm() = 0;
};

/// Creates this rank's shards, with initial values made from `seed`, and attaches the strategy to
/// the units, which must outlive it. A collective over `world`, which must outlive the strategy;
/// strategy `single` does without.
std::unique_ptr<Strategy> make_strategy(const Units& units, const ShardingOptions& options,
                                        std::uint64_t seed, Communicator* world);

/// One rank owns every parameter, its gradient and its optimizer state.
inline std::unique_ptr<Strategy> make_single_strategy(const Units& units, std::uint64_t seed) {
  return make_strategy(units, {}, seed, nullptr);
}

}  // namespace tessera
