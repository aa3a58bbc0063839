// Stream: an in-order queue of work. Event: a point in one.
//
// The two classes serve both devices. On the CPU the compute stream runs work at once, on the
// calling thread, and a side stream is a worker thread. On CUDA both are CUDA streams. Code that
// overlaps communication with computation is written once, and its races can be provoked on the
// CPU by delaying a side stream (`set_delay`).
//
// An exception inside queued work poisons the stream: later work is skipped, and every wait for the
// stream (Event::synchronize, Stream::wait, Stream::synchronize) rethrows it. On CUDA the host only
// issues the work, so enqueue() itself throws.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tessera {

class RankContext;

/// A point in a stream. The default event is complete. Copies share the point.
class Event {
 public:
  struct State;  // a device's implementation; see stream_queue.h

  Event() = default;
  /// Has the stream passed this point?
  bool complete() const;
  /// Blocks the calling thread until the stream has passed; rethrows an earlier failure.
  void synchronize() const;

 private:
  friend class Stream;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool complete_without_failure() const;
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  class Queue;  // a device's implementation; see stream_queue.h

  Stream() = default;
  /// Runs work immediately on the calling thread.
  static Stream inline_stream(std::string name, int id);
  /// Runs work in order on a thread of its own, inside `context` (may be null).
  static Stream worker(std::string name, int id, RankContext* context);

  const std::string& name() const;
  /// Number within the context; 0 is the compute stream. Keys the allocator's cache.
  int id() const;

  /// Queues `work`. On a CUDA stream `work` runs at once on the host and issues device work. The
  /// tensors that `work` captures are held until it is done. Tensors of a side stream's work are held
  /// until the compute stream or the host has waited for a later event of the stream.
  void enqueue(std::function<void()> work) const;
  /// The point after everything queued so far.
  Event record() const;
  /// Work queued from now on starts after `event`. (An inline stream blocks.)
  void wait(const Event& event) const;
  /// Blocks the host until the queue is empty; rethrows a failure.
  void synchronize() const;

  /// Test aid: `delay` runs before every piece of queued work on a worker stream.
  void set_delay(std::function<void()> delay) const;

 private:
  explicit Stream(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  std::shared_ptr<Queue> queue_;
};

}  // namespace tessera
