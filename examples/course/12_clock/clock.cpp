// A virtual clock of two streams.
#include "examples/course/12_clock/clock.h"

#include <algorithm>
#include <array>

namespace tessera::course {
namespace {

/// The last entry of the stream before entry `index`, or -1.
int before(std::span<const Entry> entries, int index, int stream) {
  do {
    --index;
  } while (index >= 0 && entries[static_cast<std::size_t>(index)].stream != stream);
  return index;
}

}  // namespace

std::vector<Interval> intervals_of(std::span<const Entry> entries) {
  std::vector<Interval> intervals;
  std::array<double, 2> now = {};
  for (const Entry& entry : entries) {
    double& time = now[static_cast<std::size_t>(entry.stream)];
    const double begin = time;
    time += entry.seconds;
    if (entry.waits_for >= 0) {
      time = std::max(time, intervals[static_cast<std::size_t>(entry.waits_for)].end);
    }
    intervals.push_back({begin, time});
  }
  return intervals;
}

double exposed(std::span<const Entry> entries, std::span<const Interval> intervals) {
  double sum = 0.0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].stream != kComputation || entries[i].waits_for < 0) continue;
    sum += intervals[i].end - intervals[i].begin;
  }
  return sum;
}

double computing_on_critical_path(std::span<const Entry> entries,
                                  std::span<const Interval> intervals) {
  int at = 0;
  for (int i = 0; i < static_cast<int>(entries.size()); ++i) {
    if (intervals[static_cast<std::size_t>(i)].end > intervals[static_cast<std::size_t>(at)].end)
      at = i;
  }
  double sum = 0.0;
  while (at >= 0) {
    const Entry& entry = entries[static_cast<std::size_t>(at)];
    const Interval& interval = intervals[static_cast<std::size_t>(at)];
    if (entry.waits_for >= 0 && interval.end > interval.begin) {
      at = entry.waits_for;
      continue;
    }
    if (entry.stream == kComputation) sum += entry.seconds;
    at = before(entries, at, entry.stream);
  }
  return sum;
}

}  // namespace tessera::course
