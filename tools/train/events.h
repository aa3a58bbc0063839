// Events of a run: lines of metrics.jsonl about things that are no steps.
//
//   {"event": "checkpoint", "step": 1000, "path": "runs/a/step-001000", ..., "time": "..."}
//
// Every event has `event`, `step` (the last finished step), `elapsed_s` and `time`. Lines of metrics
// have no field `event`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct RunEvent {
  /// One of run_events().
  std::string_view name;
  std::int64_t step = 0;
  /// The event's own fields.
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();
};

/// A number for an event's field. It is printed with the fewest digits that read back as the same
/// float.
double shortest(float value);
/// The number, a float's by shortest(); null if it is not finite.
nlohmann::ordered_json finite_or_null(double value);
nlohmann::ordered_json finite_or_null(float value);

/// One JSON object. Numbers that are not finite are null.
std::string json_line(const RunEvent& event, double elapsed_s, const std::string& time);

/// An event and its own fields, for the reference.
struct EventDescription {
  std::string_view name;
  std::string_view meaning;
};
const std::vector<EventDescription>& run_events();

}  // namespace tessera
