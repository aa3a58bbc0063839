#include "sharding/plan/virtual_clock.h"

#include <algorithm>
#include <limits>

#include "runtime/check.h"
#include "runtime/dry_gpu.h"

namespace tessera {
namespace {

constexpr const char* kCompute = "compute";
constexpr double kNever = std::numeric_limits<double>::infinity();

/// A stream's entries, the one that is next or under way, and its work left in seconds at full speed.
struct Lane {
  std::vector<int> entries;
  std::size_t next = 0;
  bool runs = false;
  double left = 0.0;
  double speed = 1.0;

  bool done() const { return next == entries.size(); }
  int entry() const { return entries[next]; }
  int previous() const { return next == 0 ? -1 : entries[next - 1]; }
};

class Clock {
 public:
  Clock(const StreamLog& log, const MachineRates& machine, const ClockedRanks& ranks)
      : log_(log),
        machine_(machine),
        ranks_(ranks),
        rates_(machine.compute_of(ranks.on_node, ranks.dtype)),
        causes_(log.entries().size(), -1),
        called_behind_(log.entries().size(), -1) {
    timeline_.entries.assign(log.entries().size(), {kNever, kNever});
    int last_of_compute = -1;
    for (int i = 0; i < log.size(); ++i) {
      const std::string& stream = log.entries()[at(i)].stream;
      lanes_[stream].entries.push_back(i);
      if (machine.cores > 0 && stream != kCompute) called_behind_[at(i)] = last_of_compute;
      if (stream == kCompute) last_of_compute = i;
    }
  }

  Timeline run() {
    while (!all_done()) {
      while (start_some()) {
      }
      advance();
    }
    timeline_.seconds = now_;
    follow_chain();
    return timeline_;
  }

 private:
  static std::size_t at(int entry) { return static_cast<std::size_t>(entry); }
  double end_of(int entry) const { return entry < 0 ? 0.0 : timeline_.entries[at(entry)].end; }
  bool ended(int entry) const { return end_of(entry) <= now_; }

  bool all_done() const {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [](const auto& lane) { return lane.second.done(); });
  }

  /// Starts the next entry of each stream that is free, if nothing that it waits for is left. Waits that are
  /// over take no time. Returns whether anything changed.
  bool start_some() {
    bool changed = false;
    for (auto& [stream, lane] : lanes_) {
      if (lane.runs || lane.done()) continue;
      const int i = lane.entry();
      const StreamLog::Entry& entry = log_.entries()[at(i)];
      if (!ended(entry.waits_for) || !ended(called_behind_[at(i)])) continue;
      causes_[at(i)] = lane.previous();
      for (const int awaited : {entry.waits_for, called_behind_[at(i)]}) {
        if (end_of(awaited) > end_of(causes_[at(i)])) causes_[at(i)] = awaited;
      }
      timeline_.entries[at(i)].begin = entry.work ? now_ : end_of(lane.previous());
      lane.runs = true;
      lane.left = entry.work ? seconds_of(*entry.work) : 0.0;
      if (lane.left <= 0.0) finish(lane);
      changed = true;
    }
    return changed;
  }

  void finish(Lane& lane) {
    const int i = lane.entry();
    Timeline::Interval& interval = timeline_.entries[at(i)];
    interval.end = now_;
    const StreamLog::Entry& entry = log_.entries()[at(i)];
    if (!entry.work && entry.stream == kCompute) timeline_.exposed += now_ - interval.begin;
    lane.runs = false;
    ++lane.next;
  }

  /// Moves the time to the next end of any work.
  void advance() {
    set_speeds();
    double step = kNever;
    for (const auto& [stream, lane] : lanes_) {
      if (lane.runs) step = std::min(step, lane.left / lane.speed);
    }
    if (step == kNever) {
      check(all_done(), "the log of a dry run has waits that never end");
      return;
    }
    now_ += step;
    for (auto& [stream, lane] : lanes_) {
      if (!lane.runs) continue;
      const double left = lane.left - step * lane.speed;
      lane.left = left > 1e-12 * lane.left ? left : 0.0;
      if (lane.left == 0.0) finish(lane);
    }
  }

  double seconds_of(const Work& work) const {
    if (is_of_host(work)) return host_seconds(machine_, work, ranks_.on_node);
    const double threads =
        machine_.cores > 0 ? static_cast<double>(ranks_.threads) / rates_.threads : 1.0;
    switch (work.kind) {
      case Work::Kind::forward:
        return work.amount / (rates_.forward * threads);
      case Work::Kind::backward:
        return work.amount / (rates_.backward * threads);
      case Work::Kind::memory:
        return work.amount / (rates_.memory * threads);
      default:
        return transfer_seconds(machine_, work);
    }
  }

  /// The share of a core that a thread gets if each rank has so many busy ones.
  double share(int ranks, double busy) const {
    return std::min(1.0, machine_.cores / (ranks * busy));
  }

  /// The speed of each stream's work, where 1 is the measured rate.
  void set_speeds() {
    if (machine_.cores == 0) return;
    double busy = 0.0;
    for (const auto& [stream, lane] : lanes_) {
      if (lane.runs) busy += stream == kCompute ? ranks_.threads : 1.0;
    }
    if (busy == 0.0) return;
    for (auto& [stream, lane] : lanes_) {
      if (!lane.runs) continue;
      // A rate was measured with its ranks' own sharing of cores.
      const Work& work = *log_.entries()[at(lane.entry())].work;
      const double measured = work.kind == Work::Kind::transfer && !is_of_host(work)
                                  ? share(machine_.link_of(work.ranks).ranks, 1.0)
                                  : share(rates_.ranks, rates_.threads);
      lane.speed = share(ranks_.on_node, busy) / measured;
    }
  }

  std::string resource_of(const Work& work) const {
    if (is_of_host(work)) {
      return work.kind == Work::Kind::memory ? "host memory" : "link to the host";
    }
    switch (work.kind) {
      case Work::Kind::forward:
      case Work::Kind::backward:
        return kCompute;
      case Work::Kind::memory:
        return "memory";
      default:
        return work.ranks_on_node < work.ranks ? fmt::format("network, {} ranks", work.ranks)
                                               : fmt::format("link of {} ranks", work.ranks);
    }
  }

  /// From the last end back to time 0, along the entries whose ends let the next begin.
  void follow_chain() {
    int last = -1;
    for (int i = 0; i < log_.size(); ++i) {
      if (last < 0 || end_of(i) >= end_of(last)) last = i;
    }
    for (int i = last; i >= 0; i = causes_[at(i)]) {
      const auto& [begin, end] = timeline_.entries[at(i)];
      const StreamLog::Entry& entry = log_.entries()[at(i)];
      if (entry.work && end > begin) timeline_.chain[resource_of(*entry.work)] += end - begin;
    }
  }

  const StreamLog& log_;
  const MachineRates& machine_;
  const ClockedRanks ranks_;
  const ComputeRates& rates_;
  std::map<std::string, Lane> lanes_;
  /// The entry that each one began behind.
  std::vector<int> causes_;
  /// The last entry of the compute stream before the call, where the host makes calls in turn.
  std::vector<int> called_behind_;
  Timeline timeline_;
  double now_ = 0.0;
};

}  // namespace

std::string Timeline::limit() const {
  const auto most = std::max_element(
      chain.begin(), chain.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == chain.end() ? kCompute : most->first;
}

Timeline run_clock(const StreamLog& log, const MachineRates& machine, const ClockedRanks& ranks) {
  return Clock(log, machine, ranks).run();
}

std::vector<Profiler::Record> records_of(const StreamLog& log, const Timeline& timeline) {
  // The numbers of the entries of each stream, in order.
  std::map<std::string, std::vector<int>> lanes;
  for (int i = 0; i < log.size(); ++i) {
    lanes[log.entries()[static_cast<std::size_t>(i)].stream].push_back(i);
  }
  const auto interval = [&](int i) { return timeline.entries[static_cast<std::size_t>(i)]; };
  std::vector<Profiler::Record> records;
  for (const StreamLog::Span& span : log.spans()) {
    const std::vector<int>& lane = lanes[span.stream];
    const auto first = std::lower_bound(lane.begin(), lane.end(), span.begin);
    const auto behind = std::lower_bound(lane.begin(), lane.end(), span.end);
    const double before = first == lane.begin() ? 0.0 : interval(*std::prev(first)).end;
    const double begin = first < behind ? interval(*first).begin : before;
    const double end = first < behind ? interval(*std::prev(behind)).end : begin;
    records.push_back({.name = span.name,
                       .track = span.stream,
                       .begin_us = begin * 1e6,
                       .duration_us = (end - begin) * 1e6,
                       .instant = span.instant});
  }
  return records;
}

}  // namespace tessera
