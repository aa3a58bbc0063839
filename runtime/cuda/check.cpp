#include "runtime/cuda/check.h"

#include "runtime/check.h"

namespace tessera::cuda {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  fail("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace tessera::cuda
