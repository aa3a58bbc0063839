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
#include "kernels/gradient_norm/op.h"
#include "runtime/tensor.h"
#include "sharding/comm/communicator.h"
#include "sharding/options.h"
#include "sharding/unit.h"

namespace tessera {

/// The part of a parameter that this rank's optimizer updates. It may be empty.
struct Shard {
  Parameter parameter;
  /// Master values, f32: of the parameter's shape if it is all of it, flat otherwise.
  Tensor data;
  /// The reduced gradient, f32; valid between the step's last finish_backward() and the next
  /// start_step(). Undefined for a frozen parameter.
  Tensor gradient;
  /// Both lie in host memory if they are offloaded. Whoever touches them there first waits for the
  /// compute stream, on the host.
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
  /// A micro-batch's backward pass has ended. After the step's last, every reduction has landed in
  /// the shards' gradients.
  virtual void finish_backward() = 0;

  /// Forgets the last step's gradients: the next contribution overwrites.
  virtual void start_step() = 0;
  /// The masters hold new values, which every later use of the parameters must see.
  virtual void weights_changed() = 0;

  /// What this rank owns: a shard for every parameter of the model.
  virtual const std::vector<Shard>& shards() const = 0;
  /// The norm of the whole gradient, on the device; every rank gets the same bits. A collective.
  virtual GradientNorm gradient_norm() = 0;
  /// The whole f32 master of every parameter, one at a time, in the order of shards(): for saving.
  /// A collective: all ranks must call it. `visit` must not keep the tensor unless it copies it.
  virtual void visit_whole(const std::function<void(const Parameter&, const Tensor&)>& visit) = 0;
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
