#include "runtime/profiler.h"

#include "runtime/backends.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"

namespace tessera {
namespace {

double microseconds(Profiler::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

void Profiler::set_tracing(bool on) {
  const std::lock_guard lock(mutex_);
  tracing_ = on;
}

double Profiler::total_ms(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = totals_ms_.find(name);
  return found == totals_ms_.end() ? 0.0 : found->second;
}

void Profiler::reset_totals() {
  const std::lock_guard lock(mutex_);
  totals_ms_.clear();
}

std::vector<Profiler::Record> Profiler::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

void Profiler::add(std::string_view name, std::string_view track, Clock::time_point begin,
                   Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  auto total = totals_ms_.find(name);
  if (total == totals_ms_.end()) total = totals_ms_.emplace(name, 0.0).first;
  total->second += microseconds(end - begin) / 1000.0;
  if (tracing_) {
    records_.push_back({std::string(name), std::string(track), microseconds(begin - origin_),
                        microseconds(end - begin)});
  }
}

void Profiler::add_mark(std::string_view name, std::string_view track) {
  const std::lock_guard lock(mutex_);
  if (!tracing_) return;
  const double now = microseconds(Clock::now() - origin_);
  records_.push_back({std::string(name), std::string(track), now, 0.0, /*instant=*/true});
}

void mark(std::string_view name) {
  RankContext* here = context_or_null();
  if (here != nullptr) here->profiler().add_mark(name, current_stream().name());
}

Span::Span(std::string name) : name_(std::move(name)), begin_(Profiler::Clock::now()) {
  if constexpr (kHasCuda) cuda::begin_range(name_);
}

Span::~Span() {
  if constexpr (kHasCuda) cuda::end_range();
  if (RankContext* here = context_or_null()) {
    here->profiler().add(name_, current_stream().name(), begin_, Profiler::Clock::now());
  }
}

}  // namespace tessera
