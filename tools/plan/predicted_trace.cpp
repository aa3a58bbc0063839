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

/// A track for each axis of the mesh, with its transfers.
void add_axes(std::vector<Profiler::Record>& records, const GroupCalls& calls,
              const Timeline& timeline, const Mesh& mesh) {
  for (const GroupCall& call : calls) {
    const auto& [begin, end] = timeline.entries[static_cast<std::size_t>(call.entry)];
    records.push_back({.name = call.name,
                       .track = fmt::format("axis {}", axis_of(call, mesh)),
                       .begin_us = begin * 1e6,
                       .duration_us = (end - begin) * 1e6});
  }
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
  check(figures.time.has_value(), "machine '{}' has no rates of the host's memory, for offloading",
        options.machine->name);
  const int stage_ranks = planned.options.ranks / planned.plan.pipeline.shape.ranks;
  std::vector<std::string> events;
  for (std::size_t place = 0; place < figures.stages.size(); ++place) {
    const StepMemory& stage = figures.stages[place];
    const Timeline& timeline = figures.time->stages[place];
    auto records = records_of(stage.log, timeline);
    if (has_cuts(planned.plan.mesh)) add_axes(records, stage.calls, timeline, planned.plan.mesh);
    const int rank = figures.first_rank + static_cast<int>(place) * stage_ranks;
    events.push_back(trace_events(records, rank, /*shift_us=*/0.0));
  }
  // The waits of a pipeline's step are for other logs, too.
  const bool alone = !planned.plan.pipeline.has_several();
  const std::string step =
      alone ? fmt::format(",\n\"step\":{}",
                          step_of(figures.step->log, figures.time->timeline, planned.plan).dump())
            : "";
  write_file_atomically(
      path, fmt::format("{{\"traceEvents\":[{}\n]{}}}\n", fmt::join(events, ","), step));
}

}  // namespace tessera
