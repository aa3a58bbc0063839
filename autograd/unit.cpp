#include "autograd/unit.h"

#include <memory>
#include <optional>

#include "autograd/activation_watch.h"
#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "runtime/profiler.h"

namespace tessera {

// One pass through a unit, owned by the nodes it recorded: pending from the forward pass until its
// backward is done, or until its graph is dropped (or nothing was recorded).
class Unit::Run final : public BackwardScope {
 public:
  explicit Run(Unit& unit) : unit_(unit), runs_of_pass_(unit.pending_runs_) { ++*runs_of_pass_; }
  ~Run() override {
    if (pending_) --*runs_of_pass_;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void before_backward() override {
    span_.emplace("backward " + unit_.name_, SpanUse::trace);
    if (unit_.hooks_ != nullptr) unit_.hooks_->before_backward(unit_);
  }
  void after_backward() override {
    span_.reset();
    pending_ = false;
    if (--*runs_of_pass_ > 0) return;
    if (unit_.hooks_ != nullptr) unit_.hooks_->after_backward(unit_);
  }

 private:
  Unit& unit_;
  const std::shared_ptr<int> runs_of_pass_;
  bool pending_ = true;
  std::optional<Span> span_;  // of the unit's backward pass
};

Unit::Unit(std::string name, std::vector<Parameter> parameters, bool at_both_ends)
    : name_(std::move(name)), parameters_(std::move(parameters)), at_both_ends_(at_both_ends) {}

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
  const Span span("forward " + name_, SpanUse::trace);
  if (hooks_ != nullptr) hooks_->before_forward(*this);
  ActivationWatch* const watch = activation_watch();
  if (watch != nullptr) watch->enter(*this);
  Variable result;
  {
    const BackwardScopeGuard scope(std::make_shared<Run>(*this));
    result = checkpointed ? checkpoint(forward, input) : forward(input);
  }
  if (watch != nullptr) watch->leave(result.data());
  if (hooks_ != nullptr) hooks_->after_forward(*this);
  return result;
}

}  // namespace tessera
