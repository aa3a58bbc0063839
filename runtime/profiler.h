// Spans: named intervals of time on a stream, and their export as a Chrome trace.
//
//   { Span span("forward"); ... }
//
// A span adds to its name's total: a step's forward_ms and backward_ms are such totals. While
// tracing is on, it is also kept for write_chrome_trace. Perfetto (ui.perfetto.dev) opens the file
// and shows one process per rank and one track per stream. Spans of units and collectives are for a
// trace alone (SpanUse::trace): without one they take no time of a GPU, which costs two events each.
//
// On the CPU a span takes the host's time. On a GPU it takes the GPU's time, from the point of the
// stream where the span began to the point where it ended: the host only queues work and is ahead.
// The times are read late, by total_ms() and records(), so a span never waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class StreamLog;

namespace cuda {
class Moment;
}

/// A point of the current stream: the host's time and, on a GPU, an event for the GPU's time.
struct TimePoint {
  using Clock = std::chrono::steady_clock;

  Clock::time_point host = {};
  std::shared_ptr<const cuda::Moment> device = {};
  /// In a dry run: the number of entries in the log of its streams.
  int logged = 0;

  static TimePoint now();
};

/// By the GPU's clock if both points have one; waits for the GPU.
double milliseconds_between(const TimePoint& begin, const TimePoint& end);

class Profiler {
 public:
  using Clock = TimePoint::Clock;
  struct Record {
    std::string name;
    std::string track;  // the stream it ran on
    double begin_us;    // since the profiler was made
    double duration_us;
    bool instant = false;  // a mark: it has no duration
  };

  /// A dry run's profiler also writes its spans and marks to `log`; null: no dry run.
  explicit Profiler(int rank, StreamLog* log = nullptr)
      : rank_(rank), log_(log), origin_(Clock::now()) {}

  void set_tracing(bool on);
  /// Whether spans are kept: for a trace, or in the log of a dry run.
  bool keeps_spans() const;
  /// Total milliseconds spent in spans of this name since the last reset_totals(). Waits until a
  /// GPU has passed their ends.
  double total_ms(std::string_view name) const;
  void reset_totals();
  /// On a GPU, waits for the traced spans and for the current stream.
  std::vector<Record> records() const;
  void add(std::string_view name, std::string_view track, const TimePoint& begin,
           const TimePoint& end);
  void add_mark(std::string_view name, std::string_view track);
  int rank() const { return rank_; }
  /// The time at which begin_us is 0.
  Clock::time_point origin() const { return origin_; }

 private:
  /// A span between two events of a GPU.
  struct Queued {
    std::string name, track;
    TimePoint begin, end;
    bool traced;
    bool counts = true;  // in its name's total
  };

  void add_to_total(std::string_view name, double ms);
  /// Adds finished spans at the front to the totals and drops them, so that few are kept.
  void settle();

  int rank_;
  StreamLog* log_;
  Clock::time_point origin_;
  mutable std::mutex mutex_;
  bool tracing_ = false;
  std::map<std::string, double, std::less<>> totals_ms_;
  std::vector<Record> records_;
  std::deque<Queued> queued_;
};

enum class SpanUse {
  total,  // adds to its name's total, and is kept while tracing is on
  trace,  // is kept while tracing is on; otherwise it is not measured
};

/// Measures its own lifetime on the current stream. In builds for GPUs it is also a range in
/// NVIDIA's tools.
class Span {
 public:
  explicit Span(std::string name, SpanUse use = SpanUse::total);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  std::string name_;
  std::optional<TimePoint> begin_;  // none: not measured
};

/// Records an instant event on the current stream, at the host's time: for example, that work was
/// issued to another stream. Kept while tracing is on.
void mark(std::string_view name);

/// The records as trace events, with times that count from `zero`: one rank's part of a trace of
/// several processes.
std::string trace_events(const Profiler& profiler, Profiler::Clock::time_point zero);

/// Writes the events of all ranks (see trace_events) as one Chrome trace, atomically.
void write_chrome_trace(const std::string& path, const std::vector<std::string>& events);

/// The same for the profilers of this process. Times count from the origin of the earliest profiler.
void write_chrome_trace(const std::string& path, const std::vector<const Profiler*>& profilers);

}  // namespace tessera
