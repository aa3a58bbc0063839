#include "runtime/cuda/status.h"

#include "runtime/check.h"

namespace tessera::cuda {

void check_status(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  fail("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace tessera::cuda
