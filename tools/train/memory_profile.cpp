#include "tools/train/memory_profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

double milliseconds(const BlockEvent& event, const MemoryProfile& profile) {
  const auto passed = event.time - profile.events.front().time;
  return std::chrono::duration<double, std::milli>(passed).count();
}

Json frame(std::string_view name, std::string_view category) {
  return {{"name", name}, {"filename", category}, {"line", 0}};
}

/// PyTorch lists the innermost call first.
Json frames_of(const BlockEvent& event) {
  const std::string_view category = name_of(event.category);
  Json frames = Json::array();
  for (auto span = event.spans.rbegin(); span != event.spans.rend(); ++span) {
    frames.push_back(frame(*span, category));
  }
  if (frames.empty()) frames.push_back(frame("between spans", category));
  return frames;
}

Json trace_entry(const BlockEvent& event, const char* action, const MemoryProfile& profile) {
  return {{"action", action},
          {"addr", event.address},
          {"size", event.bytes},
          {"stream", event.stream},
          {"time_us", static_cast<std::int64_t>(1e3 * milliseconds(event, profile))},
          {"frames", frames_of(event)}};
}

Json live_block(std::uint64_t address, std::int64_t bytes, Json frames) {
  return {{"address", address},
          {"size", bytes},
          {"requested_size", bytes},
          {"state", "active_allocated"},
          {"frames", std::move(frames)}};
}

/// A block lies in a segment of its own, which comes and goes with it.
Json segment(Json block, int stream) {
  const Json bytes = block["size"];
  return {{"device", 0},
          {"address", block["address"]},
          {"total_size", bytes},
          {"allocated_size", bytes},
          {"active_size", bytes},
          {"requested_size", bytes},
          {"stream", stream},
          {"segment_type", "large"},
          {"segment_pool_id", Json::array({0, 0})},
          {"is_expandable", false},
          {"frames", Json::array()},
          {"blocks", Json::array({std::move(block)})}};
}

}  // namespace

Json memory_snapshot(const MemoryProfile& profile) {
  std::array<std::int64_t, kCategories> older = {};  // blocks from before that still live
  for (int i = 0; i < kCategories; ++i) older[i] = profile.before.categories[i].current;
  std::map<std::uint64_t, const BlockEvent*> live;
  Json trace = Json::array();
  const auto add = [&](std::initializer_list<const char*> actions, const BlockEvent& event) {
    for (const char* action : actions) trace.push_back(trace_entry(event, action, profile));
  };
  for (const BlockEvent& event : profile.events) {
    if (event.allocates) {
      live[event.address] = &event;
      add({"segment_alloc", "alloc"}, event);
      continue;
    }
    if (live.erase(event.address) == 0) older[static_cast<int>(event.category)] -= event.bytes;
    add({"free_requested", "free_completed", "segment_free"}, event);
  }
  Json segments = Json::array();
  for (const auto& [address, event] : live) {
    segments.push_back(
        segment(live_block(address, event->bytes, frames_of(*event)), event->stream));
  }
  for (int i = 0; i < kCategories; ++i) {
    if (older[i] <= 0) continue;
    const Json frames = Json::array({frame("before the profile", enum_names<Category>()[i])});
    segments.push_back(segment(live_block(static_cast<std::uint64_t>(i + 1), older[i], frames), 0));
  }
  return {{"segments", segments},
          {"device_traces", Json::array({trace})},
          {"external_annotations", Json::array()},
          {"allocator_settings", Json::object()}};
}

Json memory_over_time(const MemoryProfile& profile, std::size_t most) {
  std::array<std::int64_t, kCategories> now = {};
  for (int i = 0; i < kCategories; ++i) now[i] = profile.before.categories[i].current;
  const std::size_t count = profile.events.size();
  const std::size_t group = std::max<std::size_t>(1, (count + most - 1) / most);
  std::vector<double> times;
  std::vector<std::array<std::int64_t, kCategories>> moments;
  const auto total = [](const auto& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  };
  for (std::size_t i = 0; i < count; ++i) {
    const BlockEvent& event = profile.events[i];
    now[static_cast<int>(event.category)] += event.allocates ? event.bytes : -event.bytes;
    const bool first = i % group == 0;
    if (!first && total(now) <= total(moments.back())) continue;
    if (first) times.emplace_back(), moments.emplace_back();
    times.back() = milliseconds(event, profile);
    moments.back() = now;
  }
  Json result = {{"ms", times}};
  for (int i = 0; i < kCategories; ++i) {
    Json& column = result[std::string(enum_names<Category>()[i])] = Json::array();
    for (const auto& moment : moments) column.push_back(moment[i]);
  }
  return result;
}

}  // namespace tessera
