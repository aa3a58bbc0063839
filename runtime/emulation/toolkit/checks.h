// Checks that the calls of the emulated CUDA runtime share.
//
// Each returns cudaSuccess, or the error with which the call is refused. Callers hold the lock of
// Devices.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/emulation/toolkit/memory_use.h"

namespace tessera::emulation {

/// The calling thread's.
int& current_device();

/// Has the device failed?
cudaError_t refuse_failed(int device);
/// Is it a stream that has not been destroyed, of a device that has not failed?
cudaError_t check_stream(cudaStream_t stream);
cudaError_t check_event(cudaEvent_t event);

/// The memory at an address.
struct Memory {
  enum { device, pinned, pageable } kind = pageable;
  unsigned devices = 0;  // a bit, of device memory
  MemoryUse use{};
};

/// Do the bytes lie in one block of device memory, or in memory of the host? `call` is named in errors.
cudaError_t find_memory(Memory& memory, const void* data, std::size_t bytes, const char* call);

}  // namespace tessera::emulation
