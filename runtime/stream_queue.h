// The implementation interface of streams and events (runtime/stream.h).
#pragma once

#include "runtime/stream.h"

namespace tessera {

struct Event::State {
  virtual ~State() = default;
  /// Has the stream passed this point?
  virtual bool complete() = 0;
  /// Did earlier work fail? Meaningful once complete.
  virtual bool failed() { return false; }
  /// Blocks until complete; rethrows an earlier failure.
  virtual void synchronize() = 0;
};

class Stream::Queue {
 public:
  Queue(std::string name, int id) : name_(std::move(name)), id_(id) {}
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  virtual void enqueue(std::function<void()> work) = 0;
  /// The point after all work queued so far; null if that work is complete.
  virtual std::shared_ptr<Event::State> record() = 0;
  virtual void wait(const Event& event) {
    if (event.complete_without_failure()) return;
    enqueue([event] { event.synchronize(); });
  }
  virtual void synchronize() {
    if (const auto point = record()) point->synchronize();
  }
  virtual void set_delay(std::function<void()>) {}

  const std::string& name() const { return name_; }
  int id() const { return id_; }

  /// The stream of a device's queue.
  static Stream stream_of(std::shared_ptr<Queue> queue) { return Stream(std::move(queue)); }
  static Queue& queue_of(const Stream& stream) { return *stream.queue_; }
  static Event::State* state_of(const Event& event) { return event.state_.get(); }

 protected:
  /// A handle that does not own the queue, for use inside its own work.
  Stream self() { return Stream(std::shared_ptr<Queue>(std::shared_ptr<void>(), this)); }

 private:
  std::string name_;
  int id_;
};

}  // namespace tessera
