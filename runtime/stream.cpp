#include "runtime/stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/context.h"
#include "runtime/cores.h"
#include "runtime/stream_queue.h"

namespace tessera {

bool Event::complete() const {
  return !state_ || state_->complete();
}

bool Event::complete_without_failure() const {
  return !state_ || (state_->complete() && !state_->failed());
}

void Event::synchronize() const {
  if (state_) state_->synchronize();
}

namespace {

class InlineQueue final : public Stream::Queue {
 public:
  using Queue::Queue;
  void enqueue(std::function<void()> work) override { work(); }
  std::shared_ptr<Event::State> record() override { return nullptr; }
};

/// A point that the worker thread passes and other threads wait for.
class WorkerPoint final : public Event::State {
 public:
  void pass(std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex_);
      complete_ = true;
      failure_ = std::move(failure);
    }
    changed_.notify_all();
  }
  bool complete() override {
    const std::lock_guard lock(mutex_);
    return complete_;
  }
  bool failed() override {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
  }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return complete_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool complete_ = false;
  std::exception_ptr failure_;
};

// Runs work in order on one thread. After a failure the remaining work is skipped, but points are
// still passed and carry the failure, so waits for them return. Work that queues more work (a kernel
// that it calls) runs that at once.
class WorkerQueue final : public Stream::Queue {
 public:
  WorkerQueue(std::string name, int id, RankContext* context) : Queue(std::move(name), id) {
    thread_ = start_unbound([this, context] { run(context); });
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
  std::shared_ptr<Event::State> record() override {
    auto point = std::make_shared<WorkerPoint>();
    if (inside()) {
      point->pass(failure_);
    } else {
      push([this, point] { point->pass(failure_); });
    }
    return point;
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
  // Used by the worker thread only.
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
  return Event(queue_->record());
}

void Stream::wait(const Event& event) const {
  queue_->wait(event);
}

void Stream::synchronize() const {
  queue_->synchronize();
}

void Stream::set_delay(std::function<void()> delay) const {
  queue_->set_delay(std::move(delay));
}

}  // namespace tessera
