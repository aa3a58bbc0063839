#include "runtime/cuda/stream.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/capture.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/status.h"
#include "runtime/describe.h"
#include "runtime/stream_queue.h"
#include "runtime/update_stream.h"

namespace tessera::cuda {
namespace {

constexpr int kComputeStream = 0;

/// Work that the host has issued and the device may not have finished. The tensors that it captures
/// must not be reused yet.
///
/// Work is released when the host or the compute stream has waited for a later point of the stream,
/// and not when a query finds the device past it. So the allocator's accounts depend on the program
/// alone, not on the device's speed.
class WorkInFlight {
 public:
  using Number = std::uint64_t;

  /// `for_host`: only a wait by the host releases it.
  void add(std::function<void()> work, bool for_host) {
    const std::lock_guard lock(mutex_);
    held_.push_back({++last_, for_host, std::move(work)});
  }
  /// The number of the work added last.
  Number last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  /// Releases work up to `number`: the host (by_host) or the compute stream has waited for it.
  void release(Number number, bool by_host) {
    std::deque<Held> kept, done;
    const std::lock_guard lock(mutex_);
    for (Held& held : held_) {
      const bool is_done = held.number <= number && (by_host || !held.for_host);
      (is_done ? done : kept).push_back(std::move(held));
    }
    held_ = std::move(kept);
  }

 private:
  struct Held {
    Number number;
    bool for_host;
    std::function<void()> work;
  };

  mutable std::mutex mutex_;
  Number last_ = 0;
  std::deque<Held> held_;
};

/// Makes a device current on this thread for the scope: an event is made on its stream's device.
class OnDevice {
 public:
  explicit OnDevice(int index) {
    check_status(cudaGetDevice(&previous_), "cudaGetDevice");
    if (index != previous_) check_status(cudaSetDevice(index), "cudaSetDevice");
  }
  ~OnDevice() { cudaSetDevice(previous_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int previous_ = 0;
};

/// A point of a graph exists in its launches only. A launch begins after all earlier work of its
/// streams, and all their later work comes after it (graph.h). So between a graph and the rest there is
/// nothing to wait for, in either direction.
class Point final : public Event::State {
 public:
  Point(cudaStream_t stream, std::shared_ptr<WorkInFlight> work)
      : work_(std::move(work)), number_(work_->last()) {
    check_status(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
                 "cudaEventCreateWithFlags");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    check_status(status, "cudaEventRecord");
  }
  ~Point() override { cudaEventDestroy(event_); }

  cudaEvent_t native() const { return event_; }
  /// Whether the calling thread's work belongs to the same capture, or both to none.
  bool is_here() const { return capture_ == current_capture(); }
  bool complete() override {
    if (capture_ != 0) return true;
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check_status(status, "cudaEventQuery");
    return true;
  }
  void synchronize() override {
    check_host_may_wait();
    if (capture_ != 0) return context().compute_stream().synchronize();
    check_status(cudaEventSynchronize(event_), "cudaEventSynchronize");
    release(/*by_host=*/true);
  }
  void release(bool by_host) { work_->release(number_, by_host); }

 private:
  std::shared_ptr<WorkInFlight> work_;
  WorkInFlight::Number number_;
  int capture_ = current_capture();
  cudaEvent_t event_ = nullptr;
};

/// A point of a stream with a thread that queues its work.
class QueuedPoint final : public Event::State {
 public:
  /// `queued`: where the thread has recorded `point`.
  QueuedPoint(Event queued, std::shared_ptr<const Event> point)
      : queued_(std::move(queued)), point_(std::move(point)) {}

  /// Waits until the thread is there; rethrows a failure of its work.
  const Event& point() const {
    queued_.synchronize();
    return *point_;
  }
  bool complete() override { return queued_.complete() && (failed() || point_->complete()); }
  bool failed() override { return Stream::Queue::state_of(queued_)->failed(); }
  void synchronize() override { point().synchronize(); }

 private:
  const Event queued_;
  const std::shared_ptr<const Event> point_;
};

/// A GPU's stream with a thread that queues its work.
class ThreadedQueue final : public Stream::Queue {
 public:
  ThreadedQueue(const Stream& stream, RankContext& context)
      : Queue(stream.name(), stream.id()),
        stream_(stream),
        thread_(Stream::worker(stream.name(), stream.id(), &context)) {}

  void enqueue(std::function<void()> work) override {
    thread_.enqueue([stream = stream_, work = std::move(work)]() mutable {
      stream.enqueue(std::move(work));  // which alone holds its tensors from now on
    });
  }
  std::shared_ptr<Event::State> record() override {
    const auto point = std::make_shared<Event>();
    thread_.enqueue([stream = stream_, point] { *point = stream.record(); });
    return std::make_shared<QueuedPoint>(thread_.record(), point);
  }
  void wait(const Event& event) override {
    thread_.enqueue([stream = stream_, event] { stream.wait(event); });
  }
  void set_delay(std::function<void()> delay) override { thread_.set_delay(std::move(delay)); }

 private:
  const Stream stream_;
  const Stream thread_;
};

/// Side streams go before the compute stream: a collective that is queued gets the first
/// multiprocessors that become free, and does not wait for a queue of matrix products. The update stream
/// goes last: its short blocks take the multiprocessors that no product is waiting for.
int priority_of(std::string_view name, int stream) {
  int least = 0, greatest = 0;
  check_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "cudaDeviceGetStreamPriorityRange");
  if (name == kUpdateStream) return least;
  return stream == kComputeStream ? std::max(greatest, least - 1) : greatest;
}

class CudaQueue final : public Stream::Queue {
 public:
  CudaQueue(std::string name, int id) : Queue(std::move(name), id) {
    check_status(cudaMallocHost(reinterpret_cast<void**>(&fault_), sizeof *fault_),
                 "cudaMallocHost");
    *fault_ = kNoFault;
    cudaGetDevice(&device_);
    cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&tickets_), kTicketBytes);
    if (status == cudaSuccess) {
      status = cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                            priority_of(this->name(), id));
    }
    if (status != cudaSuccess) {
      cudaFree(tickets_);
      cudaFreeHost(fault_);
    }
    check_status(status, "creating a stream");
    cudaMemsetAsync(tickets_, 0, kTicketBytes, stream_);
  }
  ~CudaQueue() override {
    cudaStreamSynchronize(stream_);
    work_->release(work_->last(), /*by_host=*/true);
    cudaStreamDestroy(stream_);
    cudaFree(tickets_);
    cudaFreeHost(fault_);
  }

  cudaStream_t native() const { return stream_; }
  FaultSlot fault_slot(const char* message) {
    const auto found = std::ranges::find(fault_messages_, std::string_view(message));
    const auto kind = static_cast<FaultWord>(found - fault_messages_.begin());
    if (found == fault_messages_.end()) {
      check(kind < kFaultKinds,
            "stream {} has {} kinds of faults, the most there can be; '{}' is new", name(),
            kFaultKinds, message);
      fault_messages_.emplace_back(message);
    }
    return {fault_, kind};
  }
  void hold_until_synchronized() { for_host_ = true; }
  unsigned* tickets() const { return tickets_; }

  // The work is held until it has been waited for. The compute stream needs this only for host
  // memory: its device blocks are reused in stream order.
  void enqueue(std::function<void()> work) override {
    const Stream here = self();
    const StreamGuard guard(here);
    const bool outer = std::exchange(for_host_, false);  // work may queue more work
    work();
    const bool for_host = std::exchange(for_host_, outer);
    if (for_host || id() != kComputeStream) work_->add(std::move(work), for_host);
  }
  std::shared_ptr<Event::State> record() override {
    const OnDevice on_device(device_);
    return std::make_shared<Point>(stream_, work_);
  }
  void wait(const Event& event) override {
    if (auto* const later = dynamic_cast<QueuedPoint*>(state_of(event))) {
      return wait(later->point());
    }
    auto* const point = dynamic_cast<Point*>(state_of(event));
    if (point == nullptr) return event.synchronize();  // a point of a worker thread
    if (point->is_here()) {
      check_status(cudaStreamWaitEvent(stream_, point->native(), 0), "cudaStreamWaitEvent");
    }
    if (id() == kComputeStream) point->release(/*by_host=*/false);
  }
  void synchronize() override {
    check_host_may_wait();
    const WorkInFlight::Number last = work_->last();
    check_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    work_->release(last, /*by_host=*/true);
    if (*fault_ != kNoFault) fail("{}", describe_fault(std::exchange(*fault_, kNoFault)));
  }

 private:
  static constexpr FaultWord kFaultKinds = 256;  // eight bits of a FaultWord
  static constexpr std::size_t kTicketBytes = kTickets * sizeof(unsigned);

  std::string describe_fault(FaultWord word) const {
    const FaultWord kind = word % kFaultKinds;
    if (kind >= fault_messages_.size()) {
      return fmt::format("a kernel left the word {:#x}, which names no fault", word);
    }
    return fmt::format(fmt::runtime(fault_messages_[kind]), word / kFaultKinds);
  }

  FaultWord* fault_ = nullptr;
  unsigned* tickets_ = nullptr;
  std::vector<std::string> fault_messages_;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<WorkInFlight> work_ = std::make_shared<WorkInFlight>();
  bool for_host_ = false;
};

CudaQueue& queue_of(const Stream& stream) {
  auto* queue = dynamic_cast<CudaQueue*>(&Stream::Queue::queue_of(stream));
  check(queue != nullptr, "stream {} is not a GPU's", stream.name());
  return *queue;
}

}  // namespace

Stream make_stream(std::string name, int id) {
  return Stream::Queue::stream_of(std::make_shared<CudaQueue>(std::move(name), id));
}

Stream queued_by_thread(const Stream& stream, RankContext& context) {
  return Stream::Queue::stream_of(std::make_shared<ThreadedQueue>(stream, context));
}

cudaStream_t native(const Stream& stream) {
  return queue_of(stream).native();
}

void hold_until_synchronized(const Stream& stream) {
  queue_of(stream).hold_until_synchronized();
}

FaultSlot fault_slot(const Stream& stream, const char* message) {
  return queue_of(stream).fault_slot(message);
}

unsigned* tickets(const Stream& stream) {
  return queue_of(stream).tickets();
}

}  // namespace tessera::cuda
