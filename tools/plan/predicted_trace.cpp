#include "tools/plan/predicted_trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/check.h"
#include "runtime/chrome_trace.h"
#include "runtime/file.h"
#include "tools/plan/figures.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// The slot of each bucket: {"h.0": 0, "h.1": 1}.
Json slots_of(const Plan& plan, const Slots GroupPlan::*slots) {
  Json found = Json::object();
  for (const GroupPlan& group : plan.groups) {
    const std::vector<int>& of_bucket = (group.*slots).of_bucket;
    for (std::size_t b = 0; b < of_bucket.size(); ++b)
      found[group.buckets()[b].name] = of_bucket[b];
  }
  return found;
}

/// The step as its log has it, so that another program can time it again without some of the waits.
Json step_of(const StreamLog& log, const Timeline& timeline, const Plan& plan) {
  Json entries = Json::array(), spans = Json::array();
  for (std::size_t i = 0; i < log.entries().size(); ++i) {
    const StreamLog::Entry& entry = log.entries()[i];
    const auto& [begin, end] = timeline.entries[i];
    Json one = {{"stream", entry.stream}, {"seconds", entry.work ? end - begin : 0.0}};
    if (!entry.work) one["waits_for"] = entry.waits_for;
    entries.push_back(one);
  }
  for (const StreamLog::Span& span : log.spans()) {
    spans.push_back({{"name", span.name},
                     {"stream", span.stream},
                     {"begin", span.begin},
                     {"end", span.end},
                     {"instant", span.instant},
                     {"held", span.held}});
  }
  return {{"entries", entries},
          {"spans", spans},
          {"categories", enum_names<Category>()},
          {"value_slots", slots_of(plan, &GroupPlan::gather_slots)},
          {"gradient_slots", slots_of(plan, &GroupPlan::gradient_slots)}};
}

}  // namespace

void write_predicted_trace(const Config& config, const PlanOptions& options,
                           const std::string& path) {
  check(options.machine.has_value(), "a predicted trace needs --machine");
  const PlanFigures planned = plan_figures(suited_to(config, options), options);
  const PlannedStrategy& figures = planned.figures;
  check(!planned.plan.pipeline.has_several(),
        "the time of a pipeline is not predicted; set sharding.pipeline_parallel=1");
  check(figures.time.has_value(), "machine '{}' has no rates of the host's memory, for offloading",
        options.machine->name);
  const auto records = records_of(figures.step->log, figures.time->timeline);
  const int rank = figures.prediction.fullest_rank;
  write_file_atomically(
      path, fmt::format("{{\"traceEvents\":[{}\n],\n\"step\":{}}}\n",
                        trace_events(records, rank, /*shift_us=*/0.0),
                        step_of(figures.step->log, figures.time->timeline, planned.plan).dump()));
}

}  // namespace tessera
