// Strategy: who owns which part of the parameters, and when parts become whole.
//
// Five hooks, called around every unit, are all that a strategy adds to training. One file per
// strategy; `single` (one rank owns everything) is the simplest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/parameter.h"
#include "runtime/tensor.h"
#include "sharding/unit.h"

namespace tessera {

/// The part of a parameter that this rank's optimizer updates.
struct Shard {
  Parameter parameter;
  /// Master values, f32.
  Tensor data;
  /// The reduced gradient; valid between finish_backward() and the next forward pass.
  Tensor gradient;
  /// Flat index of the first element within the parameter.
  std::int64_t first = 0;
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Make the unit's parameters whole.
  virtual void before_forward(Unit& unit) = 0;
  /// Let go of them.
  virtual void after_forward(Unit& unit) = 0;
  /// Make them whole again.
  virtual void before_backward(Unit& unit) = 0;
  /// The unit's gradients are complete: reduce them, let go.
  virtual void after_backward(Unit& unit) = 0;
  /// Every reduction has landed in the shards' gradients.
  virtual void finish_backward() = 0;

  /// Forgets the last step's gradients: the next contribution overwrites.
  virtual void start_step() = 0;
  /// What this rank owns, in the units' order.
  virtual const std::vector<Shard>& shards() const = 0;
};

using Units = std::vector<std::unique_ptr<Unit>>;

/// One rank owns every parameter, its gradient and its optimizer state: f32, initialized from
/// `seed`, windows open for the strategy's lifetime. Attaches itself to the units, which must
/// outlive it.
std::unique_ptr<Strategy> make_single_strategy(const Units& units, std::uint64_t seed);

}  // namespace tessera
