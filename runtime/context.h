// RankContext: the device, streams and memory of one rank.
//
// A rank is a thread (or the only thread of a process) with a device, streams, an allocator, a
// thread team, a profiler and a position in the random sequence. The current context is
// thread-local, so N ranks may be N threads of one process without sharing state by accident.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeindex>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/profiler.h"
#include "runtime/random.h"
#include "runtime/stream.h"
#include "runtime/stream_log.h"
#include "runtime/threads.h"

namespace tessera {

struct ContextOptions {
  Device device;
  int rank = 0;
  int world_size = 1;
  /// Threads of this rank; 0 means available_threads() / world_size, at least 1.
  int threads = 0;
  std::uint64_t seed = 0;
  /// A dry run; see RankContext::is_dry.
  bool dry = false;
};

/// The position in training. With the seed it addresses every random number of that position.
struct RandomPosition {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  /// Global index: accumulation step * ranks + rank, so K micro-batches on one rank draw the same
  /// numbers as K ranks.
  std::uint64_t micro_batch = 0;
};

class RankContext {
 public:
  /// Raises Error if the device is not available in this build.
  explicit RankContext(const ContextOptions& options = {});
  ~RankContext();
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  const Device& device() const { return options_.device; }
  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  /// Is this a dry run? It executes a program for the sake of its memory accounts. All allocations
  /// are accounted for, but tensors have addresses without memory, and kernels, copies and the
  /// thread team do nothing. A value that the host reads from a tensor is zero.
  ///
  /// Work outside of kernels is done as always. Code that writes to a tensor's memory on the host
  /// does it inside threads().run or parallel_for, which a dry run skips.
  bool is_dry() const { return options_.dry; }
  /// The work that a dry run on the CPU queues; null for a run that is not dry.
  StreamLog* stream_log() const { return stream_log_.get(); }
  Allocator& allocator() { return *allocator_; }
  const std::shared_ptr<Allocator>& shared_allocator() const { return allocator_; }
  /// Allocates host memory that the device copies from and to directly. On the CPU it is the
  /// allocator itself.
  Allocator& host_allocator() { return *host_allocator_; }
  const std::shared_ptr<Allocator>& shared_host_allocator() const { return host_allocator_; }
  ThreadTeam& threads() { return threads_; }
  Profiler& profiler() { return profiler_; }
  RandomPosition& random() { return random_; }

  const Stream& compute_stream() const { return compute_stream_; }
  /// The side stream of this name, created on first use.
  const Stream& side_stream(const std::string& name);

  /// The one T of this context, made on first use: handles of libraries, their choices for a shape,
  /// options of kernels. It is destroyed before the allocator and a GPU's streams, and after all work
  /// of the CPU's streams.
  template <typename T>
  T& state() {
    const std::lock_guard lock(states_mutex_);
    std::shared_ptr<void>& state = states_[typeid(T)];
    if (!state) state = std::make_shared<T>();
    return *static_cast<T*>(state.get());
  }

 private:
  ContextOptions options_;
  std::unique_ptr<StreamLog> stream_log_;
  std::shared_ptr<Allocator> allocator_;
  std::shared_ptr<Allocator> host_allocator_;
  ThreadTeam threads_;
  Profiler profiler_;
  RandomPosition random_;
  Stream compute_stream_;
  std::mutex side_streams_mutex_;  // work on a side stream may ask for another
  std::map<std::string, Stream> side_streams_;
  std::mutex states_mutex_;
  std::map<std::type_index, std::shared_ptr<void>> states_;
};

/// The calling thread's context. Raises Error if the thread has no context.
RankContext& context();
/// The calling thread's context, or null.
RankContext* context_or_null();
/// The stream that kernels and allocations on this thread belong to.
const Stream& current_stream();

/// Makes `context` and its compute stream current on this thread for the scope.
class ContextGuard {
 public:
  explicit ContextGuard(RankContext& context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  RankContext* previous_context_;
  const Stream* previous_stream_;
};

/// Makes `stream` the current stream of this thread for the scope.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  const Stream* previous_stream_;
};

}  // namespace tessera
