// Errors of CUDA calls become Error, with the call's name.
#pragma once

#include <cuda_runtime_api.h>

namespace tessera::cuda {

/// Raises Error "cudaMalloc: out of memory (cudaErrorMemoryAllocation)" unless `status` is success.
void check(cudaError_t status, const char* call);

}  // namespace tessera::cuda
