#include "runtime/cuda/stream.h"

#include <deque>
#include <mutex>
#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/stream_queue.h"

namespace tessera::cuda {
namespace {

class Point final : public Event::State {
 public:
  Point() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~Point() override { cudaEventDestroy(event_); }

  cudaEvent_t native() const { return event_; }
  bool complete() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  void synchronize() override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaQueue final : public Stream::Queue {
 public:
  CudaQueue(std::string name, int id) : Queue(std::move(name), id) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMallocHost(reinterpret_cast<void**>(&fault_), sizeof *fault_), "cudaMallocHost");
    *fault_ = kNoFault;
  }
  ~CudaQueue() override {
    cudaStreamSynchronize(stream_);
    held_.clear();
    cudaFreeHost(fault_);
    cudaStreamDestroy(stream_);
  }

  cudaStream_t native() const { return stream_; }
  FaultWord* fault_word() const { return fault_; }

  void enqueue(std::function<void()> work) override {
    const Stream here = self();
    const StreamGuard guard(here);
    work();
    hold(std::move(work));
  }
  std::shared_ptr<Event::State> record() override {
    auto point = std::make_shared<Point>();
    check(cudaEventRecord(point->native(), stream_), "cudaEventRecord");
    return point;
  }
  void wait(const Event& event) override {
    if (const auto* point = dynamic_cast<const Point*>(state_of(event))) {
      check(cudaStreamWaitEvent(stream_, point->native(), 0), "cudaStreamWaitEvent");
    } else {
      event.synchronize();  // a thread of the host passes it
    }
  }
  void synchronize() override {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    release_finished();
    if (*fault_ != kNoFault) fail_with_fault();
  }

 private:
  // The device reads and writes the tensors that the work holds until it has come to this point. On
  // the compute stream nothing need be held: a block given back there is reused in order.
  void hold(std::function<void()> work) {
    if (id() == 0) return;
    release_finished();
    const std::lock_guard lock(mutex_);
    held_.push_back({record(), std::move(work)});
  }
  void release_finished() {
    const std::lock_guard lock(mutex_);
    while (!held_.empty() && held_.front().until->complete()) held_.pop_front();
  }
  [[noreturn]] void fail_with_fault() { fail("{}", describe(std::exchange(*fault_, kNoFault))); }

  struct Held {
    std::shared_ptr<Event::State> until;
    std::function<void()> work;
  };

  cudaStream_t stream_ = nullptr;
  FaultWord* fault_ = nullptr;
  std::mutex mutex_;
  std::deque<Held> held_;
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

FaultWord* fault_word(const Stream& stream) {
  return queue_of(stream).fault_word();
}

}  // namespace tessera::cuda
