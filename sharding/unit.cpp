#include "sharding/unit.h"

#include "autograd/checkpoint.h"
#include "runtime/profiler.h"
#include "sharding/strategy.h"

namespace tessera {

Unit::Unit(std::string name, std::vector<Parameter> parameters)
    : name_(std::move(name)), parameters_(std::move(parameters)) {}

Variable Unit::run(const std::function<Variable(const Variable&)>& forward, const Variable& input) {
  return run_between_hooks(checkpointing_ && gradients_enabled(), forward, input);
}

Variable Unit::run_once(const std::function<Variable(const Variable&)>& forward,
                        const Variable& input) {
  return run_between_hooks(false, forward, input);
}

Variable Unit::run_between_hooks(bool checkpointed,
                                 const std::function<Variable(const Variable&)>& forward,
                                 const Variable& input) {
  const Span span("forward " + name_);
  if (strategy_ != nullptr) strategy_->before_forward(*this);
  Variable result;
  {
    const BackwardScopeGuard scope(this);
    result = checkpointed ? checkpoint(forward, input) : forward(input);
  }
  if (result.requires_gradient()) ++runs_awaiting_backward_;
  if (strategy_ != nullptr) strategy_->after_forward(*this);
  return result;
}

void Unit::before_backward() {
  if (strategy_ != nullptr) strategy_->before_backward(*this);
}

void Unit::after_backward() {
  if (--runs_awaiting_backward_ > 0) return;
  if (strategy_ != nullptr) strategy_->after_backward(*this);
}

}  // namespace tessera
