#include "runtime/stream_log.h"

#include <utility>

#include "runtime/context.h"
#include "runtime/stream_queue.h"

namespace tessera {
namespace {

/// The bytes of each category now.
std::array<std::int64_t, kCategories> held_now() {
  std::array<std::int64_t, kCategories> held = {};
  RankContext* const here = context_or_null();
  if (here == nullptr) return held;
  const MemoryAccount account = here->allocator().account();
  for (std::size_t i = 0; i < held.size(); ++i) held[i] = account.categories[i].current;
  return held;
}

}  // namespace

void StreamLog::start() {
  writes_ = true;
  ++generation_;
  entries_.clear();
  spans_.clear();
}

void StreamLog::add_work(const std::string& stream, const Work& work) {
  if (writes_) entries_.push_back({.stream = stream, .work = work});
}

void StreamLog::add_wait(const std::string& stream, int waits_for) {
  if (writes_) entries_.push_back({.stream = stream, .work = {}, .waits_for = waits_for});
}

void StreamLog::add_span(std::string_view name, std::string_view stream, int begin, int end) {
  if (!writes_) return;
  spans_.push_back({.name = std::string(name),
                    .stream = std::string(stream),
                    .begin = begin,
                    .end = end,
                    .held = held_now()});
}

void StreamLog::add_mark(std::string_view name, std::string_view stream) {
  if (!writes_) return;
  spans_.push_back({.name = std::string(name),
                    .stream = std::string(stream),
                    .begin = size(),
                    .end = size(),
                    .instant = true,
                    .held = held_now()});
}

int StreamLog::last_of(const std::string& stream) const {
  for (int i = size() - 1; i >= 0; --i) {
    if (entries_[static_cast<std::size_t>(i)].stream == stream) return i;
  }
  return -1;
}

void log_work(const Work& work) {
  const RankContext* const here = context_or_null();
  if (here == nullptr || !here->is_dry()) return;
  here->stream_log()->add_work(current_stream().name(), work);
}

void log_memory(double bytes) {
  log_work({.kind = Work::Kind::memory, .amount = bytes});
}

namespace {

/// A point behind an entry of the log. Nothing runs, so it has always passed.
class LoggedPoint final : public Event::State {
 public:
  LoggedPoint(StreamLog& log, int entry)
      : log_(log), generation_(log.generation()), entry_(entry) {}
  bool complete() override { return true; }
  void synchronize() override { log_.add_wait(context().compute_stream().name(), entry()); }
  int entry() const { return generation_ == log_.generation() ? entry_ : -1; }

 private:
  StreamLog& log_;
  int generation_;
  int entry_;
};

class LoggedQueue final : public Stream::Queue {
 public:
  LoggedQueue(std::string name, int id, StreamLog& log) : Queue(std::move(name), id), log_(log) {}

  void enqueue(std::function<void()> work) override {
    const Stream here = self();
    const StreamGuard guard(here);
    work();
  }
  std::shared_ptr<Event::State> record() override {
    return std::make_shared<LoggedPoint>(log_, log_.last_of(name()));
  }
  void wait(const Event& event) override {
    const auto* const point = dynamic_cast<const LoggedPoint*>(state_of(event));
    log_.add_wait(name(), point == nullptr ? -1 : point->entry());
  }

 private:
  StreamLog& log_;
};

}  // namespace

Stream make_logged_stream(std::string name, int id, StreamLog& log) {
  return Stream::Queue::stream_of(std::make_shared<LoggedQueue>(std::move(name), id, log));
}

}  // namespace tessera
