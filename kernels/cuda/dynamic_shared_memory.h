// Opting in to more dynamic shared memory than the default of 48 KiB.
#pragma once

#include <cstddef>

namespace tessera::gpu {

/// Lets the calling rank launch `kernel` with `bytes` of dynamic shared memory. Without this call
/// the limit is 48 KiB minus the kernel's static shared memory. Calls CUDA only if the rank has not
/// asked for as much before. Raises Error if a block of the GPU cannot have so much.
void allow_shared_memory(const void* kernel, std::size_t bytes);

}  // namespace tessera::gpu
