// Checks that the calls of the emulated CUDA runtime share.
//
// Each returns cudaSuccess, or the error with which the call is refused. Callers hold the lock of
// Devices.
#pragma once

#include <cuda_runtime_api.h>

namespace tessera::emulation {

/// The calling thread's.
int& current_device();

/// Has the device failed?
cudaError_t refuse_failed(int device);
/// Is it a stream that has not been destroyed, of a device that has not failed?
cudaError_t check_stream(cudaStream_t stream);
cudaError_t check_event(cudaEvent_t event);

}  // namespace tessera::emulation
