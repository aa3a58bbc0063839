#include "sharding/plan/stages.h"

#include <algorithm>
#include <string_view>

#include "runtime/check.h"
#include "runtime/integer.h"
#include "runtime/text.h"
#include "sharding/plan/partition.h"

namespace tessera {
namespace {

constexpr std::string_view kHead = "head";

bool has_tied_ends(const Units& units) {
  return units.front()->at_both_ends();
}

std::int64_t cost_of(const Parameter& parameter, int experts_per_token) {
  if (!parameter.stacked() || experts_per_token == 0) return parameter.numel();
  return parameter.numel() / parameter.shape()[0] * experts_per_token;
}

std::int64_t cost_of(const Unit& unit, int experts_per_token) {
  std::int64_t cost = 0;
  for (const Parameter& parameter : unit.parameters()) {
    cost += cost_of(parameter, experts_per_token);
  }
  return cost;
}

/// The table of tied ends is the largest of their parameters.
std::int64_t table_of(const Unit& unit) {
  std::int64_t most = 0;
  for (const Parameter& parameter : unit.parameters()) most = std::max(most, parameter.numel());
  return most;
}

/// The part at which a unit of this name begins.
int part_named(const Units& units, std::string_view name) {
  if (has_tied_ends(units) && name == kHead) return part_count(units) - 1;
  const auto found = std::find_if(units.begin(), units.end(),
                                  [&](const auto& unit) { return unit->name() == name; });
  check(found != units.end(),
        "'{}' is no unit of this model, which has '{}' to '{}'; sharding.pipeline_stages are the "
        "names of the units at which stages begin",
        name, units.front()->name(), has_tied_ends(units) ? kHead : units.back()->name());
  return static_cast<int>(found - units.begin());
}

std::vector<int> named_starts(const Units& units, const std::string& rule) {
  std::vector<int> starts = {0};
  for (const std::string_view name : split(rule, ',')) starts.push_back(part_named(units, name));
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

std::vector<int> balanced_starts(const Units& units, int count, int experts_per_token) {
  const std::vector<int> stage_of = contiguous_min_max(part_costs(units, experts_per_token), count);
  std::vector<int> starts;
  for (int stage = 0; stage < count; ++stage) {
    starts.push_back(
        static_cast<int>(std::find(stage_of.begin(), stage_of.end(), stage) - stage_of.begin()));
  }
  return starts;
}

}  // namespace

int part_count(const Units& units) {
  return static_cast<int>(units.size()) + (has_tied_ends(units) ? 1 : 0);
}

std::vector<std::int64_t> part_costs(const Units& units, int experts_per_token) {
  std::vector<std::int64_t> costs = {0};
  for (std::size_t i = 1; i < units.size(); ++i) {
    costs.push_back(cost_of(*units[i], experts_per_token));
  }
  if (has_tied_ends(units)) costs.push_back(table_of(*units.front()));
  return costs;
}

std::vector<PartRange> cut_stages(const Units& units, const std::string& rule, int count,
                                  int experts_per_token) {
  const int parts = part_count(units);
  check(count <= parts,
        "sharding.pipeline_parallel: {} stages are more than the model's {} parts, which are the "
        "embedding, {} blocks and the head",
        count, parts, parts - 2);
  const std::vector<int> starts =
      rule.empty() ? balanced_starts(units, count, experts_per_token) : named_starts(units, rule);
  check(static_cast<int>(starts.size()) == count,
        "sharding.pipeline_stages '{}' names {} stages with the first, and the pipeline has {}: "
        "sharding.pipeline_parallel times sharding.pipeline_chunks",
        rule, starts.size(), count);
  std::vector<PartRange> stages;
  for (int stage = 0; stage < count; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    stages.push_back({starts[s], stage + 1 == count ? parts : starts[s + 1]});
  }
  return stages;
}

std::int64_t TiedPart::place() const {
  return ceil_div(shape.numel(), Partition::kAlignment) * Partition::kAlignment;
}

std::int64_t TiedPart::count(TiedTensors of) const {
  if (of == TiedTensors::weights) return 1;
  if (!parameter.trainable()) return 0;
  return of == TiedTensors::gradients ? 1 : leaves;
}

std::int64_t tied_elements(const std::vector<TiedPart>& parts, TiedTensors of) {
  std::int64_t elements = 0;
  for (const TiedPart& part : parts) elements += part.count(of) * part.place();
  return elements;
}

std::vector<PipelinePass> PipelinePlan::passes_of(int stage) const {
  std::vector<PipelinePass> passes =
      pipeline_order(schedule, shape)[static_cast<std::size_t>(rank_of(stage))];
  std::erase_if(passes, [&](const PipelinePass& pass) { return pass.chunk != chunk_of(stage); });
  return passes;
}

}  // namespace tessera
