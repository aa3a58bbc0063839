// Plans as JSON. docs/seeing.md describes the fields, whose names stay.
#include <nlohmann/json.hpp>

#include "tools/config/parse.h"
#include "tools/plan/figures.h"
#include "tools/plan/optimizer_groups.h"
#include "tools/plan/plan.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Spread& spread) {
  return {{"least", spread.least}, {"mean", spread.mean()}, {"most", spread.most}};
}

Json json_of(const StepMemory& step, int rank) {
  Json categories;
  for (int i = 0; i < kCategories; ++i) {
    categories[std::string(enum_names<Category>()[i])] = step.account.categories[i].at_peak;
  }
  return {{"total", step.account.total.peak},
          {"rank", rank},
          {"threads", step.threads},
          {"moment", step.moment},
          {"categories", categories}};
}

Json json_of(const StepTime& time) {
  Json chain = Json::object(), exposed = Json::object();
  for (const auto& [axis, seconds] : time.timeline.exposed_by_axis) exposed[axis] = seconds;
  for (const auto& [resource, seconds] : time.timeline.chain) chain[resource] = seconds;
  return {{"step_seconds", time.timeline.seconds},
          {"exposed_seconds", time.timeline.exposed},
          {"exposed_seconds_by_axis", exposed},
          {"bubble_seconds", time.timeline.bubble},
          {"tokens_per_second", time.tokens_per_second},
          {"limit", time.timeline.limit()},
          {"chain_seconds", chain}};
}

Json json_of(const PlannedStrategy& one) {
  if (!one.problem.empty()) return {{"strategy", one.name}, {"problem", one.problem}};
  const Prediction& p = one.prediction;
  const auto leaves = [&] {
    return Json{{"directly", p.leaves_node->direct}, {"in_rings", p.leaves_node->rings}};
  };
  return {{"strategy", one.name},
          {"mesh", one.mesh.empty() ? Json() : Json(one.mesh)},
          {"memory",
           {{"parameters", json_of(p.parameters)},
            {"gradients", json_of(p.gradients)},
            {"optimizer", json_of(p.optimizer)},
            {"slots", json_of(p.slots)},
            {"total", json_of(p.total)}}},
          {"on_host", json_of(p.on_host)},
          {"peak", one.step ? json_of(*one.step, p.fullest_rank) : Json()},
          {"peak_at_most", one.peak_at_most > 0 ? Json(one.peak_at_most) : Json()},
          {"nccl_at_most", one.nccl_at_most},
          {"time", one.time ? json_of(*one.time) : Json()},
          {"bytes_sent", json_of(p.bytes_sent)},
          {"bytes_leaving_node", p.leaves_node ? leaves() : Json()}};
}

Json json_of(const PlannedGroup& one) {
  const bool frozen = one.group.frozen;
  return {{"group", one.group.match},
          {"frozen", frozen},
          {"rules", one.rules},
          {"tensors", one.tensors},
          {"elements", one.elements},
          {"state_bytes", one.state_bytes},
          {"learning_rate", frozen ? Json() : Json(one.group.settings.learning_rate)},
          {"weight_decay", frozen ? Json() : Json(one.weight_decay)}};
}

Json json_of(const PlanLine& line) {
  if (!line.figures) return {{"ranks", line.ranks}, {"problem", line.problem}};
  const ResolvedConfig& run = line.figures->run;
  const std::string refusal = uneven_batch(run, line.ranks);
  Json json = {{"ranks", line.ranks},
               {"batch_size", run.config.data.batch_size},
               {"micro_batches", run.config.data.accumulation_steps},
               {"refused", refusal.empty() ? Json() : Json(refusal)}};
  json.update(json_of(line.figures->figures));
  json["expert_bytes_sent"] = line.figures->expert_bytes;
  json["strategies"] = Json::array();
  for (const PlannedStrategy& one : line.strategies) json["strategies"].push_back(json_of(one));
  return json;
}

}  // namespace

std::string plan_json(const Config& config, const std::vector<int>& ranks,
                      const PlanOptions& options) {
  const std::vector<PlanLine> lines = plan_lines(config, ranks, options);
  const PlanFigures& first = first_figures(lines);
  Json plans = Json::array(), groups = Json::array();
  for (const PlannedGroup& group : planned_groups(first)) groups.push_back(json_of(group));
  for (const PlanLine& line : lines) plans.push_back(json_of(line));
  const Json json = {{"program", "plan"},          {"model", describe_model(first.run)},
                     {"nodes", options.nodes},     {"config", config_entries(first.run.config)},
                     {"optimizer_groups", groups}, {"plans", plans}};
  return json.dump();
}

}  // namespace tessera
