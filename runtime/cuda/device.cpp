#include "runtime/check.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/check.h"

namespace tessera::cuda {

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void select_device(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    fail("device cuda:{} is not available: no GPU was found ({}); use device 'cpu'", index,
         cudaGetErrorString(status));
  }
  tessera::check(0 <= index && index < count,
                 "device cuda:{} is not available: this machine's GPUs are numbered 0 to {}", index,
                 count - 1);
  check(cudaSetDevice(index), "cudaSetDevice");
}

}  // namespace tessera::cuda
