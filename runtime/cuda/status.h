// CUDA status codes become Error.
#pragma once

#include <cuda_runtime_api.h>

namespace tessera::cuda {

/// Raises Error "cudaMalloc: out of memory (cudaErrorMemoryAllocation)" unless `status` is success.
/// `call` is the name of the function that returned it.
void check_status(cudaError_t status, const char* call);

}  // namespace tessera::cuda
