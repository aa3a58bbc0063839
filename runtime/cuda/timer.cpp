#include "runtime/cuda/timer.h"

#include "runtime/context.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/stream.h"

namespace tessera::cuda {

Timer::Timer() {
  check(cudaEventCreate(&start_), "cudaEventCreate");
  const cudaError_t status = cudaEventCreate(&stop_);
  if (status != cudaSuccess) cudaEventDestroy(start_);
  check(status, "cudaEventCreate");
}

Timer::~Timer() {
  cudaEventDestroy(start_);
  cudaEventDestroy(stop_);
}

void Timer::start() {
  check(cudaEventRecord(start_, native(current_stream())), "cudaEventRecord");
}

void Timer::stop() {
  check(cudaEventRecord(stop_, native(current_stream())), "cudaEventRecord");
}

double Timer::seconds() const {
  check(cudaEventSynchronize(stop_), "cudaEventSynchronize");
  float milliseconds = 0.0f;
  check(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
  return 1e-3 * milliseconds;
}

}  // namespace tessera::cuda
