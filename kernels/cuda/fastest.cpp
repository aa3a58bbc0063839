#include "kernels/cuda/fastest.h"

#include <array>

#include "kernels/matmul/fastest_way.h"
#include "runtime/cuda/status.h"

namespace tessera::cuda {
namespace {

class StopWatch {
 public:
  StopWatch() {
    for (cudaEvent_t& event : events_) check_status(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~StopWatch() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  /// Milliseconds that the GPU takes for the calls that `work` queues on `stream`.
  template <typename Work>
  float time(cudaStream_t stream, Work work) {
    check_status(cudaEventRecord(events_[0], stream), "cudaEventRecord");
    work();
    check_status(cudaEventRecord(events_[1], stream), "cudaEventRecord");
    check_status(cudaEventSynchronize(events_[1]), "cudaEventSynchronize");
    float milliseconds = 0.0f;
    check_status(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]),
                 "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  std::array<cudaEvent_t, 2> events_{};
};

}  // namespace

std::size_t fastest(cudaStream_t stream, std::size_t candidates,
                    const std::function<void(std::size_t)>& trial) {
  StopWatch watch;
  return fastest_way(candidates, [&](std::size_t candidate, std::int64_t count) {
    return 1e-3 * watch.time(stream, [&] {
      for (std::int64_t i = 0; i < count; ++i) trial(candidate);
    });
  });
}

}  // namespace tessera::cuda
