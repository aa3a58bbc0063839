// The format is described in "Trace Event Format" (Google, 2016): complete events ("ph": "X") with
// begin and duration in microseconds, instant events ("ph": "i") and metadata events ("ph": "M")
// that name processes and threads. Here a process is a rank and a thread is a stream.
#include "runtime/chrome_trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/profiler.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json name_event(const char* what, int rank, int track, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

/// Numbers tracks in the order of their names, so that all ranks list their streams in one order.
std::map<std::string, int> number_tracks(const std::vector<Profiler::Record>& records) {
  std::map<std::string, int> tracks;
  for (const auto& record : records) tracks.emplace(record.track, 0);
  int number = 0;
  for (auto& [name, track] : tracks) track = number++;
  return tracks;
}

}  // namespace

std::string trace_events(const std::vector<Profiler::Record>& records, int rank, double shift_us) {
  std::string text;
  const auto add = [&](const Json& event) {
    text += text.empty() ? "\n" : ",\n";
    text += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const std::map<std::string, int> tracks = number_tracks(records);
  add(name_event("process_name", rank, 0, fmt::format("rank {}", rank)));
  for (const auto& [name, track] : tracks) add(name_event("thread_name", rank, track, name));
  for (const auto& record : records) {
    Json event = {{"ph", record.instant ? "i" : "X"},
                  {"name", record.name},
                  {"pid", rank},
                  {"tid", tracks.at(record.track)},
                  {"ts", record.begin_us + shift_us}};
    record.instant ? event["s"] = "t" : event["dur"] = record.duration_us;
    add(event);
  }
  return text;
}

std::string trace_events(const Profiler& profiler, Profiler::Clock::time_point zero) {
  const std::chrono::duration<double, std::micro> shift = profiler.origin() - zero;
  return trace_events(profiler.records(), profiler.rank(), shift.count());
}

void write_chrome_trace(const std::string& path, const std::vector<std::string>& events) {
  write_file_atomically(path, fmt::format("{{\"traceEvents\":[{}\n]}}\n", fmt::join(events, ",")));
}

void write_chrome_trace(const std::string& path, const std::vector<const Profiler*>& profilers) {
  // Every profiler counts from its own origin. The trace counts from the earliest origin.
  auto zero = Profiler::Clock::time_point::max();
  for (const Profiler* profiler : profilers) zero = std::min(zero, profiler->origin());
  std::vector<std::string> events;
  for (const Profiler* profiler : profilers) events.push_back(trace_events(*profiler, zero));
  write_chrome_trace(path, events);
}

}  // namespace tessera
