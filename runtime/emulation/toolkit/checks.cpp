#include "runtime/emulation/toolkit/checks.h"

#include <string>

#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"

namespace tessera::emulation {

int& current_device() {
  thread_local int device = 0;
  return device;
}

cudaError_t refuse_failed(int device) {
  const std::string why = Devices::get().failure(device);
  return why.empty() ? cudaSuccess : refuse(cudaErrorLaunchFailure, why);
}

cudaError_t check_stream(cudaStream_t stream) {
  if (stream == nullptr) {
    return refuse(cudaErrorInvalidResourceHandle, "the default stream is not emulated");
  }
  if (stream->destroyed) {
    return refuse(cudaErrorInvalidResourceHandle, "the stream was destroyed");
  }
  return refuse_failed(stream->device);
}

cudaError_t check_event(cudaEvent_t event) {
  if (event == nullptr || event->destroyed) {
    return refuse(cudaErrorInvalidResourceHandle, "the event was destroyed or is null");
  }
  return cudaSuccess;
}

}  // namespace tessera::emulation
