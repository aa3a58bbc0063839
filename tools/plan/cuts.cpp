#include "tools/plan/cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sharding/plan/stages.h"

namespace tessera {
namespace {

/// The parameters of a unit that a token is multiplied by: all, or those that are trained.
double factors_of(const Unit& unit, const TransformerShape::Experts& experts, bool trained_only) {
  double factors = 0.0;
  for (const Parameter& parameter : unit.parameters()) {
    if (parameter.shape().rank() < 2 || (trained_only && !parameter.trainable())) continue;
    const auto elements = static_cast<double>(parameter.numel());
    factors += parameter.stacked() ? elements / static_cast<double>(experts.count) *
                                         static_cast<double>(experts.per_token)
                                   : elements;
  }
  return factors;
}

}  // namespace

unsigned Cuts::kind() const {
  return (tensor > 1 ? 1U : 0U) | (context > 1 ? 2U : 0U) | (pipeline > 1 ? 4U : 0U) |
         (expert > 1 ? 8U : 0U);
}

void Cuts::apply(ShardingConfig& sharding) const {
  sharding.tensor_parallel = tensor;
  sharding.context_parallel = context;
  sharding.pipeline_parallel = pipeline;
  sharding.expert_parallel = expert;
  sharding.pipeline_schedule = schedule;
  sharding.pipeline_chunks = chunks;
  if (pipeline == 1) sharding.pipeline_stages.clear();
}

std::vector<std::string> Cuts::keys() const {
  std::vector<std::string> keys;
  const auto add = [&](const char* name, int size) {
    if (size > 1) keys.push_back(fmt::format("sharding.{}={}", name, size));
  };
  add("tensor_parallel", tensor);
  add("context_parallel", context);
  add("pipeline_parallel", pipeline);
  if (pipeline > 1) {
    keys.push_back(fmt::format("sharding.pipeline_schedule={}", enum_name(schedule)));
  }
  add("pipeline_chunks", chunks);
  add("expert_parallel", expert);
  return keys;
}

LeastTime::LeastTime(const Units& units, const TransformerShape& shape, std::int64_t rows,
                     std::int64_t length, std::string stages)
    : units_(units),
      stages_(std::move(stages)),
      experts_per_token_(static_cast<int>(shape.experts.per_token)) {
  const auto tokens = static_cast<double>(rows * length);
  const double attention = attention_flops(shape, rows, length) / static_cast<double>(shape.layers);
  parts_.resize(static_cast<std::size_t>(part_count(units)));
  for (std::size_t part = 1; part + 1 < parts_.size(); ++part) {
    const double forward = 2.0 * tokens * factors_of(*units[part], shape.experts, false);
    const double weights = 2.0 * tokens * factors_of(*units[part], shape.experts, true);
    const bool is_trained = weights > 0.0;  // else the gradient may end behind this part
    parts_[part] = {.forward = forward + attention,
                    .backward = is_trained ? forward + 2.0 * attention + weights : 0.0};
  }
  parts_.back().forward = 6.0 * tokens * static_cast<double>(shape.vocab_size * shape.width);
}

double LeastTime::seconds(const Cuts& cuts, std::int64_t micro_batches, bool recomputes,
                          const ComputeRates& rates) const {
  const std::vector<PartRange> stages = cut_stages(units_, cuts.pipeline > 1 ? stages_ : "",
                                                   cuts.pipeline * cuts.chunks, experts_per_token_);
  const double sharers = cuts.tensor * cuts.context;
  const bool fills = cuts.schedule == PipelineSchedule::zero_bubble;
  // `work` of each rank in one micro-batch; `waits` for the first stage of each rank before it.
  std::vector<double> work(static_cast<std::size_t>(cuts.pipeline), 0.0), waits(work.size(), 0.0);
  double before = 0.0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    double forward = 0.0, backward = 0.0;
    for (int part = stages[stage].first; part < stages[stage].last; ++part) {
      const Part& one = parts_[static_cast<std::size_t>(part)];
      forward += one.forward / sharers / rates.forward;
      backward += one.backward / sharers / rates.backward;
      if (recomputes && one.backward > 0.0) backward += one.forward / sharers / rates.backward;
    }
    work[stage % work.size()] += forward + backward;
    if (stage < waits.size()) waits[stage] = before;
    before += forward + (fills ? 0.0 : backward);
  }
  double most = 0.0;
  for (std::size_t rank = 0; rank < work.size(); ++rank) {
    most = std::max(most, waits[rank] + static_cast<double>(micro_batches) * work[rank]);
  }
  return most;
}

}  // namespace tessera
