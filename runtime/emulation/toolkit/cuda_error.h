// How the emulated runtime refuses a call.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

namespace tessera::emulation {

/// Makes `error` the calling thread's last error, with a reason, and returns it.
cudaError_t refuse(cudaError_t error, std::string why = {});

}  // namespace tessera::emulation
