#include "runtime/stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/context.h"

namespace tessera {

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool complete = false;
  std::exception_ptr failure;

  void pass(std::exception_ptr why) {
    {
      const std::lock_guard lock(mutex);
      complete = true;
      failure = std::move(why);
    }
    changed.notify_all();
  }
};

bool Event::complete() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->complete;
}

bool Event::complete_without_failure() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->complete && !state_->failure;
}

void Event::synchronize() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->complete; });
  if (state_->failure) std::rethrow_exception(state_->failure);
}

class Stream::Queue {
 public:
  Queue(std::string name, int id) : name_(std::move(name)), id_(id) {}
  virtual ~Queue() = default;
  virtual void enqueue(std::function<void()> work) = 0;
  /// Passes `state` once everything queued so far has run.
  virtual void record(std::shared_ptr<Event::State> state) = 0;
  virtual void set_delay(std::function<void()> delay) = 0;

  const std::string& name() const { return name_; }
  int id() const { return id_; }

 protected:
  /// A handle that does not own the queue, for use inside its own work.
  Stream self() { return Stream(std::shared_ptr<Queue>(std::shared_ptr<void>(), this)); }

 private:
  std::string name_;
  int id_;
};

namespace {

class InlineQueue final : public Stream::Queue {
 public:
  using Queue::Queue;
  void enqueue(std::function<void()> work) override { work(); }
  void record(std::shared_ptr<Event::State> state) override { state->pass(nullptr); }
  void set_delay(std::function<void()>) override {}
};

// Work in order on one thread. After a failure the remaining work is skipped, but points are still
// passed, carrying the failure: nobody who waits hangs. Work queued from within work (a kernel
// called by it) runs at once, where its caller expects it.
class WorkerQueue final : public Stream::Queue {
 public:
  WorkerQueue(std::string name, int id, RankContext* context) : Queue(std::move(name), id) {
    thread_ = std::thread([this, context] { run(context); });
  }
  ~WorkerQueue() override {
    push([this] { stopping_ = true; });
    thread_.join();
  }

  void enqueue(std::function<void()> work) override {
    if (inside()) return work();
    push([this, work = std::move(work)] {
      if (failure_) return;
      try {
        if (delay_) delay_();
        work();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  void record(std::shared_ptr<Event::State> state) override {
    if (inside()) return state->pass(failure_);
    push([this, state = std::move(state)] { state->pass(failure_); });
  }
  void set_delay(std::function<void()> delay) override {
    push([this, delay = std::move(delay)] { delay_ = delay; });
  }

 private:
  bool inside() const { return std::this_thread::get_id() == thread_.get_id(); }

  void push(std::function<void()> item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
  }

  void run(RankContext* context) {
    const Stream here = self();
    std::optional<ContextGuard> context_guard;
    if (context != nullptr) context_guard.emplace(*context);
    const StreamGuard stream_guard(here);
    while (!stopping_) {
      std::function<void()> item;
      {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [&] { return !items_.empty(); });
        item = std::move(items_.front());
        items_.pop_front();
      }
      item();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> items_;
  // Touched by the worker thread only.
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::function<void()> delay_;
  std::thread thread_;
};

}  // namespace

Stream Stream::inline_stream(std::string name, int id) {
  return Stream(std::make_shared<InlineQueue>(std::move(name), id));
}

Stream Stream::worker(std::string name, int id, RankContext* context) {
  return Stream(std::make_shared<WorkerQueue>(std::move(name), id, context));
}

const std::string& Stream::name() const {
  return queue_->name();
}

int Stream::id() const {
  return queue_->id();
}

void Stream::enqueue(std::function<void()> work) const {
  queue_->enqueue(std::move(work));
}

Event Stream::record() const {
  auto state = std::make_shared<Event::State>();
  queue_->record(state);
  return Event(std::move(state));
}

void Stream::wait(const Event& event) const {
  if (event.complete_without_failure()) return;
  queue_->enqueue([event] { event.synchronize(); });
}

void Stream::synchronize() const {
  record().synchronize();
}

void Stream::set_delay(std::function<void()> delay) const {
  queue_->set_delay(std::move(delay));
}

}  // namespace tessera
