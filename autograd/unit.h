// Unit: the granule of sharding, checkpointing and tracing.
//
// A model lists its units in forward order: the embedding, every block, the head. Each unit names
// the parameters that it computes with. A model runs its parts through Unit::run, whose hooks
// gather and release these parameters. The model does not know how they are sharded.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/variable.h"

namespace tessera {

class Unit;

/// The calls around each unit. A sharding strategy implements them.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  /// The unit is about to run: unshard its parameters.
  virtual void before_forward(Unit& unit) = 0;
  /// The unit has run: reshard its parameters.
  virtual void after_forward(Unit& unit) = 0;
  /// The unit's backward pass is about to run: unshard its parameters again.
  virtual void before_backward(Unit& unit) = 0;
  /// The unit's gradients are complete: reduce them, and reshard the parameters.
  virtual void after_backward(Unit& unit) = 0;
};

class Unit {
 public:
  /// `at_both_ends`: it begins the forward pass and ends it, as tied embeddings do.
  Unit(std::string name, std::vector<Parameter> parameters, bool at_both_ends = false);
  // The graph and the hooks refer to a unit by address.
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  /// The parameters, each once; a parameter belongs to exactly one unit.
  const std::vector<Parameter>& parameters() const { return parameters_; }

  bool at_both_ends() const { return at_both_ends_; }

  /// Sets the hooks that run around this unit; null for none. They must outlive their use.
  void attach(UnitHooks* hooks) { hooks_ = hooks; }
  /// Whether run() keeps activations or computes them again in backward.
  void set_checkpointing(bool on) { checkpointing_ = on; }
  bool checkpointing() const { return checkpointing_; }

  /// The runs that follow are of another forward pass than those before. So several passes may have been
  /// forward and not yet backward, as in a pipeline.
  void start_pass() { pending_runs_ = std::make_shared<int>(0); }

  /// forward(input) between the hooks, as one stretch of the backward pass. A unit may run several
  /// times per forward pass (tied weights). after_backward is called once, when all of these runs
  /// have been through backward. A run whose graph is dropped does not count.
  Variable run(const std::function<Variable(const Variable&)>& forward, const Variable& input);
  /// The same, but never computes activations again. The head needs it: it writes gradients in
  /// forward, so it must run once.
  Variable run_once(const std::function<Variable(const Variable&)>& forward, const Variable& input);

 private:
  class Run;
  Variable run_between_hooks(bool checkpointed,
                             const std::function<Variable(const Variable&)>& forward,
                             const Variable& input);

  std::string name_;
  std::vector<Parameter> parameters_;
  bool at_both_ends_;
  UnitHooks* hooks_ = nullptr;
  bool checkpointing_ = false;
  /// Recorded runs of a forward pass that have not been through backward.
  std::shared_ptr<int> pending_runs_ = std::make_shared<int>(0);
};

/// A model's units in forward order.
using Units = std::vector<std::unique_ptr<Unit>>;

}  // namespace tessera
