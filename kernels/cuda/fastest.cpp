#include "kernels/cuda/fastest.h"

#include <algorithm>
#include <array>
#include <limits>

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
  constexpr int kTrials = 7;
  StopWatch watch;
  std::size_t best = 0;
  float best_time = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < candidates; ++i) {
    std::array<float, kTrials> times;
    trial(i);  // the first one loads the kernel
    for (float& time : times) time = watch.time(stream, [&] { trial(i); });
    std::nth_element(times.begin(), times.begin() + kTrials / 2, times.end());
    if (times[kTrials / 2] < best_time) best_time = times[kTrials / 2], best = i;
  }
  return best;
}

}  // namespace tessera::cuda
