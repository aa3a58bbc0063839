#include "kernels/cuda/dynamic_shared_memory.h"

#include <cuda_runtime_api.h>

#include <map>

#include "runtime/context.h"
#include "runtime/cuda/status.h"

namespace tessera::gpu {
namespace {

/// Bytes that a rank's kernels may have, by their addresses.
struct AllowedSharedMemory {
  std::map<const void*, std::size_t> bytes;
};

}  // namespace

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  std::size_t& allowed = context().state<AllowedSharedMemory>().bytes[kernel];
  if (bytes <= allowed) return;
  cuda::check_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)),
                     "cudaFuncSetAttribute");
  allowed = bytes;
}

}  // namespace tessera::gpu
