#include "runtime/profiler.h"

#include "runtime/backends.h"
#include "runtime/capture.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/moment.h"
#include "runtime/error.h"
#include "runtime/open_spans.h"
#include "runtime/stream_log.h"

namespace tessera {
namespace {

double microseconds(Profiler::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

/// Null on the CPU, in a capture, without a context, and after a CUDA failure (which is raised when
/// results are read).
std::shared_ptr<const cuda::Moment> moment_or_null() {
  if constexpr (kHasCuda) {
    const RankContext* here = context_or_null();
    if (here == nullptr || here->device().is_cpu() || is_capturing()) return nullptr;
    try {
      return std::make_shared<cuda::Moment>();
    } catch (const Error&) {
      return nullptr;
    }
  }
  return nullptr;
}

std::vector<const std::string*>& names_of_open_spans() {
  thread_local std::vector<const std::string*> names;
  return names;
}

}  // namespace

std::vector<std::string_view> open_spans() {
  std::vector<std::string_view> names;
  for (const std::string* name : names_of_open_spans()) names.push_back(*name);
  return names;
}

TimePoint TimePoint::now() {
  const RankContext* const here = context_or_null();
  const bool dry = here != nullptr && here->is_dry();
  return {.host = Clock::now(),
          .device = moment_or_null(),
          .logged = dry ? here->stream_log()->size() : 0};
}

double milliseconds_between(const TimePoint& begin, const TimePoint& end) {
  if constexpr (kHasCuda) {
    if (begin.device != nullptr && end.device != nullptr) {
      return end.device->milliseconds_since(*begin.device);
    }
  }
  return microseconds(end.host - begin.host) / 1e3;
}

void Profiler::set_tracing(bool on) {
  const std::lock_guard lock(mutex_);
  tracing_ = on;
}

bool Profiler::keeps_spans() const {
  const std::lock_guard lock(mutex_);
  return tracing_ || log_ != nullptr;
}

double Profiler::total_ms(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = totals_ms_.find(name);
  double total = found == totals_ms_.end() ? 0.0 : found->second;
  for (const Queued& span : queued_) {
    if (span.counts && span.name == name) total += milliseconds_between(span.begin, span.end);
  }
  return total;
}

void Profiler::reset_totals() {
  const std::lock_guard lock(mutex_);
  totals_ms_.clear();
  std::erase_if(queued_, [](const Queued& span) { return !span.traced; });
  for (Queued& span : queued_) span.counts = false;
}

std::vector<Profiler::Record> Profiler::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<Record> all = records_;
  if constexpr (kHasCuda) {
    if (queued_.empty()) return all;
    // The two clocks are compared at one moment.
    const TimePoint reference = TimePoint::now();
    current_stream().synchronize();
    const double reference_us = microseconds(Clock::now() - origin_);
    for (const Queued& span : queued_) {
      if (!span.traced) continue;
      const double before_us = 1e3 * milliseconds_between(span.begin, reference);
      const double duration_us = 1e3 * milliseconds_between(span.begin, span.end);
      all.push_back({span.name, span.track, reference_us - before_us, duration_us});
    }
  }
  return all;
}

void Profiler::add(std::string_view name, std::string_view track, const TimePoint& begin,
                   const TimePoint& end) {
  if (is_capturing()) return;  // the host's time to record work is not the work's
  const std::lock_guard lock(mutex_);
  if (log_ != nullptr) log_->add_span(name, track, begin.logged, end.logged);
  if (begin.device != nullptr && end.device != nullptr) {
    settle();
    queued_.push_back({std::string(name), std::string(track), begin, end, tracing_});
    return;
  }
  add_to_total(name, milliseconds_between(begin, end));
  if (tracing_) {
    records_.push_back({std::string(name), std::string(track), microseconds(begin.host - origin_),
                        microseconds(end.host - begin.host)});
  }
}

void Profiler::add_to_total(std::string_view name, double ms) {
  auto total = totals_ms_.find(name);
  if (total == totals_ms_.end()) total = totals_ms_.emplace(name, 0.0).first;
  total->second += ms;
}

void Profiler::settle() {
  if constexpr (kHasCuda) {
    try {
      for (; !queued_.empty(); queued_.pop_front()) {
        const Queued& span = queued_.front();
        if (span.traced || !span.end.device->passed()) return;
        if (span.counts) add_to_total(span.name, milliseconds_between(span.begin, span.end));
      }
    } catch (const Error&) {
      return;  // the GPU failed: its next synchronization raises; this may run in a destructor
    }
  }
}

void Profiler::add_mark(std::string_view name, std::string_view track) {
  const std::lock_guard lock(mutex_);
  if (log_ != nullptr) log_->add_mark(name, track);
  if (!tracing_) return;
  const double now = microseconds(Clock::now() - origin_);
  records_.push_back({std::string(name), std::string(track), now, 0.0, /*instant=*/true});
}

void mark(std::string_view name) {
  RankContext* here = context_or_null();
  if (here != nullptr) here->profiler().add_mark(name, current_stream().name());
}

Span::Span(std::string name, SpanUse use) : name_(std::move(name)) {
  names_of_open_spans().push_back(&name_);
  if constexpr (kHasCuda) cuda::begin_range(name_);
  RankContext* const here = context_or_null();
  if (here == nullptr) return;
  if (use == SpanUse::total || here->profiler().keeps_spans()) begin_ = TimePoint::now();
}

Span::~Span() {
  if constexpr (kHasCuda) cuda::end_range();
  std::erase(names_of_open_spans(), &name_);  // mostly the last one
  RankContext* const here = context_or_null();
  if (here == nullptr || !begin_) return;
  here->profiler().add(name_, current_stream().name(), *begin_, TimePoint::now());
}

}  // namespace tessera
