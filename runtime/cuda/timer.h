// How long the GPU takes for what is queued between two points: for benchmarks.
//
//   cuda::Timer timer;
//   timer.start();
//   matmul(c, a, b);
//   timer.stop();
//   const double seconds = timer.seconds();
#pragma once

#include <cuda_runtime_api.h>

namespace tessera::cuda {

/// On the stream that is current at start and stop. The host's own time does not count, unless the
/// GPU had to wait for it.
class Timer {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void start();
  void stop();
  /// Waits until the GPU has come past stop().
  double seconds() const;

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

}  // namespace tessera::cuda
