#include "tools/plan/unit_work.h"

#include <algorithm>
#include <utility>

#include "autograd/deferred_gradients.h"
#include "autograd/operations/travelling_rows.h"
#include "models/transformer_shape.h"
#include "runtime/stream_log.h"

namespace tessera {

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

double UnitWork::products(const Unit& unit, std::initializer_list<Filter> filters) const {
  double weights = 0.0;
  for (const Parameter& parameter : unit.parameters()) {
    if (parameter.shape().rank() < 2 || parameter.stacked()) continue;
    if (travel_by_rank(parameter.tensor_axis())) continue;
    const auto passes = [&](Filter filter) { return (parameter.*filter)(); };
    if (!std::all_of(filters.begin(), filters.end(), passes)) continue;
    weights += static_cast<double>(parameter.held_shape().numel());
  }
  return 2.0 * tokens_ * weights;
}

void UnitWork::before_forward(Unit& unit) {
  next_.before_forward(unit);
  if (is_block(model_, unit)) {
    log_work({.kind = Work::Kind::forward,
              .amount = products(unit) + attention_,
              .in_8_bits = products(unit, {&Parameter::rounded})});
    return;
  }
  const bool is_first = &unit == model_.units().front().get();
  if (is_first && !heads_.next_is_head(unit)) return;  // a lookup
  log_work({.kind = Work::Kind::forward, .amount = tokens_ * head_flops(model_) / tensor_ranks_});
}

void UnitWork::before_backward(Unit& unit) {
  next_.before_backward(unit);
  if (!is_block(model_, unit)) return;
  const double passes = unit.checkpointing() ? 2.0 : 1.0;  // the gradients', and forward again
  Work inputs{.kind = Work::Kind::backward,
              .amount = passes * products(unit) + (passes + 1.0) * attention_,
              .in_8_bits = passes * products(unit, {&Parameter::rounded})};
  const Work weights{.kind = Work::Kind::backward,
                     .amount = products(unit, {&Parameter::trainable}),
                     .in_8_bits = products(unit, {&Parameter::trainable, &Parameter::rounded})};
  if (splits_backward_) {
    log_work(inputs);
    run_or_defer([weights] { log_work(weights); });
    return;
  }
  inputs.amount += weights.amount;
  inputs.in_8_bits += weights.in_8_bits;
  log_work(inputs);
}

}  // namespace tessera
