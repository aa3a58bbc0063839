#include "runtime/cuda/stream.h"

#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/describe.h"
#include "runtime/stream_queue.h"

namespace tessera::cuda {
namespace {

constexpr int kComputeStream = 0;

/// Work that the host has issued and the device may not have come to: what it holds (tensors) must
/// not be reused yet.
///
/// It is let go of when somebody has waited for a later point of the stream, and not when a query
/// finds the device past it: so the allocator's accounts follow from the program alone, whatever
/// the device's speed.
class WorkInFlight {
 public:
  using Number = std::uint64_t;

  /// `for_host`: until the host itself has waited.
  void add(std::function<void()> work, bool for_host) {
    const std::lock_guard lock(mutex_);
    held_.push_back({++last_, for_host, std::move(work)});
  }
  /// Of the work added last.
  Number last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  /// Somebody has waited for a point after work `number`: the host, or the compute stream.
  void let_go(Number number, bool by_host) {
    std::deque<Held> kept, released;
    const std::lock_guard lock(mutex_);
    for (Held& held : held_) {
      const bool done = held.number <= number && (by_host || !held.for_host);
      (done ? released : kept).push_back(std::move(held));
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

/// Makes a device the thread's for the scope: events are made on that of their stream.
class OnDevice {
 public:
  explicit OnDevice(int index) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (index != previous_) check(cudaSetDevice(index), "cudaSetDevice");
  }
  ~OnDevice() { cudaSetDevice(previous_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int previous_ = 0;
};

class Point final : public Event::State {
 public:
  Point(cudaStream_t stream, std::shared_ptr<WorkInFlight> work)
      : work_(std::move(work)), number_(work_->last()) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    check(status, "cudaEventRecord");
  }
  ~Point() override { cudaEventDestroy(event_); }

  cudaEvent_t native() const { return event_; }
  bool complete() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  void synchronize() override {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    let_go(/*by_host=*/true);
  }
  void let_go(bool by_host) { work_->let_go(number_, by_host); }

 private:
  std::shared_ptr<WorkInFlight> work_;
  WorkInFlight::Number number_;
  cudaEvent_t event_ = nullptr;
};

class CudaQueue final : public Stream::Queue {
 public:
  CudaQueue(std::string name, int id) : Queue(std::move(name), id) {
    check(cudaMallocHost(reinterpret_cast<void**>(&fault_), sizeof *fault_), "cudaMallocHost");
    *fault_ = kNoFault;
    cudaGetDevice(&device_);
    const cudaError_t status = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (status != cudaSuccess) cudaFreeHost(fault_);
    check(status, "cudaStreamCreateWithFlags");
  }
  ~CudaQueue() override {
    cudaStreamSynchronize(stream_);
    work_->let_go(work_->last(), /*by_host=*/true);
    cudaStreamDestroy(stream_);
    cudaFreeHost(fault_);
  }

  cudaStream_t native() const { return stream_; }
  FaultWord* fault_word() const { return fault_; }
  void hold_until_synchronized() { for_host_ = true; }

  // What the work holds is kept until it has been waited for. On the compute stream nothing need
  // be, but for the host's memory: a block given back there is reused in order.
  void enqueue(std::function<void()> work) override {
    const Stream here = self();
    const StreamGuard guard(here);
    const bool outer = std::exchange(for_host_, false);  // work may queue work of its own
    work();
    const bool for_host = std::exchange(for_host_, outer);
    if (for_host || id() != kComputeStream) work_->add(std::move(work), for_host);
  }
  std::shared_ptr<Event::State> record() override {
    const OnDevice on_device(device_);
    return std::make_shared<Point>(stream_, work_);
  }
  void wait(const Event& event) override {
    auto* const point = dynamic_cast<Point*>(state_of(event));
    if (point == nullptr) return event.synchronize();  // a thread of the host passes it
    check(cudaStreamWaitEvent(stream_, point->native(), 0), "cudaStreamWaitEvent");
    if (id() == kComputeStream) point->let_go(/*by_host=*/false);
  }
  void synchronize() override {
    const WorkInFlight::Number last = work_->last();
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    work_->let_go(last, /*by_host=*/true);
    if (*fault_ != kNoFault) fail("{}", describe(std::exchange(*fault_, kNoFault)));
  }

 private:
  FaultWord* fault_ = nullptr;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<WorkInFlight> work_ = std::make_shared<WorkInFlight>();
  bool for_host_ = false;
};

CudaQueue& queue_of(const Stream& stream) {
  auto* queue = dynamic_cast<CudaQueue*>(&Stream::Queue::queue_of(stream));
  tessera::check(queue != nullptr, "stream {} is not a GPU's", stream.name());
  return *queue;
}

}  // namespace

Stream make_stream(std::string name, int id) {
  return Stream::Queue::stream_of(std::make_shared<CudaQueue>(std::move(name), id));
}

cudaStream_t native(const Stream& stream) {
  return queue_of(stream).native();
}

void hold_until_synchronized(const Stream& stream) {
  queue_of(stream).hold_until_synchronized();
}

FaultWord* fault_word(const Stream& stream) {
  return queue_of(stream).fault_word();
}

}  // namespace tessera::cuda
