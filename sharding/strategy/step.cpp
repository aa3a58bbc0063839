#include "sharding/strategy/step.h"

#include "runtime/check.h"
#include "sharding/strategy/strategy.h"

namespace tessera {

using Phase = StepProtocol::Phase;

Step::Step(Strategy& strategy) : strategy_(strategy) {}

Step::~Step() {
  StepProtocol& protocol = strategy_.protocol_;
  if (protocol.phase == Phase::micro_batches) protocol.phase = Phase::between_steps;
}

void Step::finish_micro_batch(int chunk) {
  StepProtocol& protocol = strategy_.protocol_;
  const int all = strategy_.plan().passes();
  check(protocol.phase == Phase::micro_batches,
        "step {} has finished its {} micro-batches (data.accumulation_steps); call update() next",
        protocol.step, all);
  strategy_.finish_micro_batch(chunk);
  ++protocol.finished;
  if (protocol.finished == all) protocol.phase = Phase::complete;
}

GradientNorm Step::gradient_norm() {
  check_complete("gradient_norm()");
  return strategy_.gradient_norm();
}

void Step::update(const std::function<void()>& write, Writes writes) {
  check_complete("update()");
  strategy_.write(write, writes);
  strategy_.end_step();
}

void Step::update_by_unit(const std::function<void(int unit)>& write) {
  check_complete("update_by_unit()");
  strategy_.write_by_unit(write);
  strategy_.end_step();
}

void Step::discard() {
  check_complete("discard()");
  strategy_.end_step();
}

void Step::check_complete(const char* call) const {
  const StepProtocol& protocol = strategy_.protocol_;
  check(protocol.phase != Phase::micro_batches,
        "step {}: {} comes after {} of {} micro-batches; call finish_micro_batch() after each "
        "backward pass",
        protocol.step, call, protocol.finished, strategy_.plan().passes());
  check(protocol.phase == Phase::complete, "step {} has ended; call start_step() before {}",
        protocol.step, call);
}

}  // namespace tessera
