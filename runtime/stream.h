// Stream: an in-order queue of work. Event: a point in one.
//
// One vocabulary for both devices. On the CPU the compute stream runs what it is given at once, on
// the calling thread, and a side stream is a worker thread; on CUDA both are the real thing. Code
// that overlaps communication with computation is written once, against these two classes, and its
// races can be provoked on the CPU by delaying a side stream (`set_delay`).
//
// An exception inside enqueued work poisons the stream: later work is skipped, and whoever waits
// for it (Event::synchronize, Stream::wait, Stream::synchronize) gets the exception. On CUDA, where
// the host only issues the work, it goes straight to whoever queued it.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tessera {

class RankContext;

/// A point in a stream. The default event is complete. Copies share the point.
class Event {
 public:
  struct State;  // what a device implements; see stream_queue.h

  Event() = default;
  /// Has the stream passed this point?
  bool complete() const;
  /// Blocks the calling thread until it has; rethrows what failed before it.
  void synchronize() const;

 private:
  friend class Stream;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool complete_without_failure() const;
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  class Queue;  // what a device implements; see stream_queue.h

  Stream() = default;
  /// Runs work immediately on the calling thread.
  static Stream inline_stream(std::string name, int id);
  /// Runs work in order on a thread of its own, inside `context` (may be null).
  static Stream worker(std::string name, int id, RankContext* context);

  const std::string& name() const;
  /// Number within the context; 0 is the compute stream. Keys the allocator's cache.
  int id() const;

  /// Queues `work`. On a device stream `work` runs at once on the host and issues device work. What
  /// it holds (tensors) is kept until it is done: on a side stream until the compute stream, or the
  /// host, has waited for a later event of the stream.
  void enqueue(std::function<void()> work) const;
  /// The point after everything queued so far.
  Event record() const;
  /// What is queued from now on starts after `event`. (On an inline stream: blocks.)
  void wait(const Event& event) const;
  /// Blocks the host until the queue is empty; rethrows what failed.
  void synchronize() const;

  /// Test aid: `delay` runs before every piece of queued work on a worker stream.
  void set_delay(std::function<void()> delay) const;

 private:
  explicit Stream(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  std::shared_ptr<Queue> queue_;
};

}  // namespace tessera
