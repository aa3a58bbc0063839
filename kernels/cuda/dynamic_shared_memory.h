// Kernels that need more dynamic shared memory than a GPU gives without being asked.
#pragma once

#include <cstddef>

namespace tessera::gpu {

/// Lets `kernel` be launched with `bytes` of dynamic shared memory by the calling rank. Without this
/// the limit is 48 KiB minus the kernel's static shared memory. Costs a call of CUDA only where
/// `bytes` is more than the rank allowed the kernel before. Raises Error if a block of the GPU
/// cannot have so much.
void allow_shared_memory(const void* kernel, std::size_t bytes);

}  // namespace tessera::gpu
