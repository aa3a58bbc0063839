#include "runtime/cuda/moment.h"

#include "runtime/context.h"
#include "runtime/cuda/status.h"
#include "runtime/cuda/stream.h"

namespace tessera::cuda {

Moment::Moment() {
  check_status(cudaEventCreate(&event_), "cudaEventCreate");
  const cudaError_t status = cudaEventRecord(event_, native(current_stream()));
  if (status != cudaSuccess) cudaEventDestroy(event_);
  check_status(status, "cudaEventRecord");
}

Moment::~Moment() {
  cudaEventDestroy(event_);
}

bool Moment::passed() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check_status(status, "cudaEventQuery");
  return true;
}

void Moment::synchronize() const {
  check_status(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

double Moment::milliseconds_since(const Moment& earlier) const {
  earlier.synchronize();
  synchronize();
  float milliseconds = 0.0f;
  check_status(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace tessera::cuda
