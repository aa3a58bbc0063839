#include "sharding/plan/virtual_clock.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/check.h"
#include "runtime/dry_gpu.h"
#include "runtime/update_stream.h"

namespace tessera {
namespace {

constexpr const char* kCompute = "compute";
constexpr const char* kData = "data";
/// The axis of a wait for other stages.
constexpr const char* kOthers = "";
constexpr double kNever = std::numeric_limits<double>::infinity();

/// A stream of a log: its entries, the one that is next or under way, and its work left in seconds at full speed.
struct Lane {
  int log = 0;
  bool computes = false;
  std::vector<int> entries = {};
  std::size_t next = 0;
  bool runs = false;
  /// Waits for the other ranks of a collective.
  bool has_come = false;
  double left = 0.0;
  double speed = 1.0;

  bool done() const { return next == entries.size(); }
  int entry() const { return entries[next]; }
  int previous() const { return next == 0 ? -1 : entries[next - 1]; }
};

/// A collective of ranks with several logs: their entries, and how many of them have come.
struct Meeting {
  std::vector<int> entries;
  int come = 0;
};

/// Runs all logs. Their entries have numbers in one row, those of the first log before those of the next.
class Clock {
 public:
  Clock(const std::vector<RankLog>& logs, const Mesh& mesh, const MachineRates& machine,
        const ClockedRanks& ranks)
      : machine_(machine),
        ranks_(ranks),
        rates_(machine.compute_of(ranks.on_node, ranks.dtype)),
        rates_in_8_bits_(machine.compute_in_8_bits(ranks.on_node, ranks.dtype)) {
    for (const RankLog& log : logs) add_log(*log.log);
    std::map<std::string, std::map<int, std::vector<int>>> calls;  // by group and log
    for (int log = 0; log < static_cast<int>(logs.size()); ++log) {
      if (logs[at(log)].calls == nullptr) continue;
      for (const GroupCall& call : *logs[at(log)].calls) {
        const int entry = firsts_[at(log)] + call.entry;
        items_[at(entry)].axis = axis_of(call, mesh);
        calls[call.group][log].push_back(entry);
      }
    }
    for (const auto& [group, by_log] : calls) {
      if (by_log.size() > 1) add_meetings(group, by_log);
    }
    timelines_.resize(logs.size());
    computed_until_.assign(logs.size(), 0.0);
  }

  std::vector<Timeline> run() {
    while (!all_done()) {
      while (start_some()) {
      }
      advance();
    }
    finish_timelines();
    return std::move(timelines_);
  }

 private:
  struct Item {
    const StreamLog::Entry* entry = nullptr;
    int lane = 0;
    int waits_for = -1;
    /// The last entry of the compute stream before the call, where the host makes calls in turn.
    int called_behind = -1;
    int meeting = -1;
    std::string axis = kData;
    /// The entry that this one began behind.
    int cause = -1;
    Timeline::Interval time = {kNever, kNever};
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  Item& item(int entry) { return items_[at(entry)]; }
  const Item& item(int entry) const { return items_[at(entry)]; }
  double end_of(int entry) const { return entry < 0 ? 0.0 : item(entry).time.end; }
  bool ended(int entry) const { return end_of(entry) <= now_; }

  void add_log(const StreamLog& log) {
    const auto first = static_cast<int>(items_.size());
    const auto number = static_cast<int>(firsts_.size());
    firsts_.push_back(first);
    std::map<std::string, std::vector<int>> streams;
    int last_of_compute = -1;
    for (int i = 0; i < log.size(); ++i) {
      const StreamLog::Entry& entry = log.entries()[at(i)];
      Item one{.entry = &entry, .waits_for = entry.waits_for < 0 ? -1 : first + entry.waits_for};
      if (machine_.cores > 0 && entry.stream != kCompute) one.called_behind = last_of_compute;
      if (entry.stream == kCompute) last_of_compute = first + i;
      if (entry.stream == kUpdateStream) one.axis = kUpdateStream;
      streams[entry.stream].push_back(first + i);
      items_.push_back(std::move(one));
    }
    for (auto& [stream, entries] : streams) {
      for (const int entry : entries) item(entry).lane = static_cast<int>(lanes_.size());
      lanes_.push_back(
          {.log = number, .computes = stream == kCompute, .entries = std::move(entries)});
    }
  }

  /// Call k of one log is call k of the group in every other log.
  void add_meetings(const std::string& group, const std::map<int, std::vector<int>>& by_log) {
    const std::size_t count = by_log.begin()->second.size();
    for (const auto& [log, entries] : by_log) {
      check(entries.size() == count, "the logs have {} and {} calls of the group {}", count,
            entries.size(), group);
    }
    for (std::size_t call = 0; call < count; ++call) {
      Meeting meeting;
      for (const auto& [log, entries] : by_log) {
        meeting.entries.push_back(entries[call]);
        item(entries[call]).meeting = static_cast<int>(meetings_.size());
      }
      meetings_.push_back(std::move(meeting));
    }
  }

  bool all_done() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.done(); });
  }

  /// Starts the next entry of each stream that is free, if nothing that it waits for is left. Waits that are
  /// over take no time. Returns whether anything changed.
  bool start_some() {
    bool changed = false;
    for (Lane& lane : lanes_) {
      if (lane.runs || lane.has_come || lane.done()) continue;
      Item& next = item(lane.entry());
      if (!ended(next.waits_for) || !ended(next.called_behind)) continue;
      next.cause = lane.previous();
      for (const int awaited : {next.waits_for, next.called_behind}) {
        if (end_of(awaited) > end_of(next.cause)) next.cause = awaited;
      }
      if (next.meeting < 0) {
        start(lane);
        changed = true;
      } else {
        changed = come(lane, meetings_[at(next.meeting)]) || changed;
      }
    }
    return changed;
  }

  /// The last that comes lets all begin. Returns whether they did.
  bool come(Lane& lane, Meeting& meeting) {
    lane.has_come = true;
    if (++meeting.come < static_cast<int>(meeting.entries.size())) return false;
    const int cause = item(lane.entry()).cause;
    for (const int entry : meeting.entries) {
      item(entry).cause = cause;
      Lane& one = lanes_[at(item(entry).lane)];
      one.has_come = false;
      start(one);
    }
    return true;
  }

  void start(Lane& lane) {
    Item& next = item(lane.entry());
    const std::optional<Work>& work = next.entry->work;
    next.time.begin = work ? now_ : end_of(lane.previous());
    lane.runs = true;
    lane.left = work ? seconds_of(*work) : 0.0;
    if (lane.left <= 0.0) finish(lane);
  }

  void finish(Lane& lane) {
    item(lane.entry()).time.end = now_;
    if (lane.computes) computed_until_[at(lane.log)] = now_;
    lane.runs = false;
    ++lane.next;
  }

  /// Moves the time to the next end of any work.
  void advance() {
    set_speeds();
    double step = kNever;
    for (const Lane& lane : lanes_) {
      if (lane.runs) step = std::min(step, lane.left / lane.speed);
    }
    if (step == kNever) {
      check(all_done(), "the log of a dry run has waits that never end");
      return;
    }
    for (const Lane& lane : lanes_) {
      if (lane.computes && !lane.done()) add_exposed(lane, step);
    }
    now_ += step;
    for (Lane& lane : lanes_) {
      if (!lane.runs) continue;
      const double left = lane.left - step * lane.speed;
      lane.left = left > 1e-12 * lane.left ? left : 0.0;
      if (lane.left == 0.0) finish(lane);
    }
  }

  static bool exchanges(const Item& one) {
    return one.entry->work && one.entry->work->kind == Work::Kind::transfer;
  }

  /// Counts the next seconds of a compute stream, if it computes nothing in them.
  void add_exposed(const Lane& compute, double seconds) {
    if (compute.runs && !exchanges(item(compute.entry()))) return;
    const std::string& axis = awaited_axis(&compute);
    Timeline& timeline = timelines_[at(compute.log)];
    if (axis == kOthers) {
      timeline.bubble += seconds;
    } else {
      timeline.exposed_by_axis[axis] += seconds;
    }
  }

  /// The axis of the transfer that is under way where a stream waits.
  const std::string& awaited_axis(const Lane* lane) const {
    static const std::string others = kOthers, data = kData, host = "host";
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lane->has_come) return others;
      if (lane->done()) break;
      const Item& next = item(lane->entry());
      if (lane->runs) return is_of_host(*next.entry->work) ? host : next.axis;
      const int awaited = ended(next.waits_for) ? next.called_behind : next.waits_for;
      if (awaited < 0) break;
      lane = &lanes_[at(item(awaited).lane)];
    }
    return data;
  }

  double seconds_of(const Work& work) const {
    if (is_of_host(work)) return host_seconds(machine_, work, ranks_.on_node);
    const double threads =
        machine_.cores > 0 ? static_cast<double>(ranks_.threads) / rates_.threads : 1.0;
    switch (work.kind) {
      case Work::Kind::forward:
      case Work::Kind::backward: {
        const bool forward = work.kind == Work::Kind::forward;
        const double rate = forward ? rates_.forward : rates_.backward;
        const double in_8_bits = forward ? rates_in_8_bits_.forward : rates_in_8_bits_.backward;
        return ((work.amount - work.in_8_bits) / rate + work.in_8_bits / in_8_bits) / threads;
      }
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

  /// The speed of each stream's work, where 1 is the measured rate. A node has equally many ranks of each log.
  void set_speeds() {
    if (machine_.cores == 0) return;
    double busy = 0.0;
    for (const Lane& lane : lanes_) {
      if (lane.runs) busy += lane.computes ? ranks_.threads : 1.0;
    }
    if (busy == 0.0) return;
    busy /= static_cast<double>(firsts_.size());
    for (Lane& lane : lanes_) {
      if (!lane.runs) continue;
      // A rate was measured with its ranks' own sharing of cores.
      const Work& work = *item(lane.entry()).entry->work;
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
  std::map<std::string, double> chain() const {
    std::map<std::string, double> chain;
    int last = -1;
    for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
      if (last < 0 || end_of(i) >= end_of(last)) last = i;
    }
    for (int i = last; i >= 0; i = item(i).cause) {
      const auto& [begin, end] = item(i).time;
      const std::optional<Work>& work = item(i).entry->work;
      if (work && end > begin) chain[resource_of(*work)] += end - begin;
    }
    return chain;
  }

  void finish_timelines() {
    const std::map<std::string, double> all = chain();
    const double computed = *std::max_element(computed_until_.begin(), computed_until_.end());
    for (std::size_t log = 0; log < timelines_.size(); ++log) {
      Timeline& timeline = timelines_[log];
      timeline.seconds = now_;
      timeline.chain = all;
      for (const auto& [axis, seconds] : timeline.exposed_by_axis) timeline.exposed += seconds;
      timeline.bubble += computed - computed_until_[log];
      const std::size_t last = log + 1 < firsts_.size() ? at(firsts_[log + 1]) : items_.size();
      for (std::size_t i = at(firsts_[log]); i < last; ++i) {
        timeline.entries.push_back(items_[i].time);
      }
    }
  }

  const MachineRates& machine_;
  const ClockedRanks ranks_;
  const ComputeRates &rates_, &rates_in_8_bits_;
  std::vector<Item> items_;
  /// The first item of each log.
  std::vector<int> firsts_;
  std::vector<Lane> lanes_;
  std::vector<Meeting> meetings_;
  std::vector<Timeline> timelines_;
  /// By log, the end of its compute stream's work so far.
  std::vector<double> computed_until_;
  double now_ = 0.0;
};

}  // namespace

std::string Timeline::limit() const {
  const auto most = std::max_element(
      chain.begin(), chain.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == chain.end() ? kCompute : most->first;
}

std::string axis_of(const GroupCall& call, const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const Axis& axis : mesh.axes) {
    if (mesh.place(call.first, axis.name) != mesh.place(call.last, axis.name)) {
      axes.push_back(axis.name);
    }
  }
  const auto cuts = {"tensor", "context", "expert", "pipeline"};
  const bool is_cut =
      axes.size() == 1 && std::find(cuts.begin(), cuts.end(), axes[0]) != cuts.end();
  return is_cut ? axes[0] : kData;
}

std::vector<Timeline> run_clock(const std::vector<RankLog>& logs, const Mesh& mesh,
                                const MachineRates& machine, const ClockedRanks& ranks) {
  return Clock(logs, mesh, machine, ranks).run();
}

Timeline run_clock(const StreamLog& log, const MachineRates& machine, const ClockedRanks& ranks) {
  return Clock({{.log = &log}}, {}, machine, ranks).run().front();
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
