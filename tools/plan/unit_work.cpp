#include "tools/plan/unit_work.h"

#include <utility>

#include "autograd/deferred_gradients.h"
#include "autograd/operations/travelling_rows.h"
#include "models/transformer_shape.h"
#include "runtime/stream_log.h"

namespace tessera {
namespace {

bool every(const Parameter&) {
  return true;
}
/// Tensor ranks form a sum that they divide from 16-bit products (autograd/operations/divided.h).
bool in_8_bits(const Parameter& weight, Divided summed) {
  return weight.rounded() && (weight.tensor_axis() == nullptr || weight.cut().divided != summed);
}
bool in_8_bits_forward(const Parameter& weight) {
  return in_8_bits(weight, Divided::inputs);
}
bool in_8_bits_backward(const Parameter& weight) {
  return in_8_bits(weight, Divided::outputs);
}
bool trained(const Parameter& weight) {
  return weight.trainable();
}
bool trained_in_8_bits(const Parameter& weight) {
  return weight.trainable() && weight.rounded();
}

}  // namespace

HeadRuns::HeadRuns(const Plan& plan, int rank)
    : in_pipeline_(plan.pipeline.has_several()),
      last_stage_(plan.pipeline_rank(rank) == plan.pipeline.shape.ranks - 1) {}

bool HeadRuns::next_is_head(const Unit& unit) {
  if (!unit.at_both_ends()) return false;
  return in_pipeline_ ? last_stage_ : std::exchange(at_end_, !at_end_);
}

UnitWork::UnitWork(LanguageModel& model, UnitHooks& next, const Plan& plan, int rank,
                   std::int64_t rows, std::int64_t length)
    : model_(model),
      next_(next),
      tensor_ranks_(plan.mesh.has("tensor") ? plan.mesh.size_along({"tensor"}) : 1),
      tokens_(static_cast<double>(rows) * static_cast<double>(length) / plan.context_ranks),
      attention_(attention_flops(model.shape(), rows, length) /
                 static_cast<double>(model.shape().layers) / plan.context_ranks / tensor_ranks_),
      splits_backward_(plan.pipeline.splits_backward()),
      heads_(plan, rank) {}

double UnitWork::products(const Unit& unit,
                          const std::function<bool(const Parameter&)>& includes) const {
  double weights = 0.0;
  for (const Parameter& parameter : unit.parameters()) {
    if (parameter.shape().rank() < 2 || parameter.stacked()) continue;
    if (travel_by_rank(parameter.tensor_axis())) continue;
    if (!includes(parameter)) continue;
    weights += static_cast<double>(parameter.held_shape().numel());
  }
  return 2.0 * tokens_ * weights;
}

Work UnitWork::forward(const Unit& unit) const {
  return {.kind = Work::Kind::forward,
          .amount = products(unit, every) + attention_,
          .in_8_bits = products(unit, in_8_bits_forward)};
}

void UnitWork::before_forward(Unit& unit) {
  next_.before_forward(unit);
  if (is_block(model_, unit)) {
    log_work(forward(unit));
    return;
  }
  const bool is_first = &unit == model_.units().front().get();
  if (is_first && !heads_.next_is_head(unit)) return;  // a lookup
  log_work({.kind = Work::Kind::forward, .amount = tokens_ * head_flops(model_) / tensor_ranks_});
}

void UnitWork::before_backward(Unit& unit) {
  next_.before_backward(unit);
  if (!is_block(model_, unit)) return;
  Work inputs{.kind = Work::Kind::backward,
              .amount = products(unit, every) + 2.0 * attention_,
              .in_8_bits = products(unit, in_8_bits_backward)};
  const Work weights{.kind = Work::Kind::backward,
                     .amount = products(unit, trained),
                     .in_8_bits = products(unit, trained_in_8_bits)};
  const auto add = [&inputs](const Work& work) {
    inputs.amount += work.amount;
    inputs.in_8_bits += work.in_8_bits;
  };
  if (unit.checkpointing()) add(forward(unit));
  if (splits_backward_) {
    log_work(inputs);
    run_or_defer([weights] { log_work(weights); });
    return;
  }
  add(weights);
  log_work(inputs);
}

}  // namespace tessera
