#include "kernels/cuda/dynamic_shared_memory.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "runtime/context.h"
#include "runtime/cuda/status.h"

namespace tessera::gpu {
namespace {

/// Bytes that a rank has asked for, by kernel.
struct AllowedSharedMemory {
  std::map<const void*, std::size_t> bytes;
};

/// The limit belongs to the device, which ranks share. So it is only raised. A rank that asks for
/// less must not lower it for another rank.
void raise_limit(const void* kernel, std::size_t bytes) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  cudaFuncAttributes attributes;
  cuda::check_status(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (static_cast<int>(bytes) <= attributes.maxDynamicSharedSizeBytes) return;
  cuda::check_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)),
                     "cudaFuncSetAttribute");
}

}  // namespace

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  std::size_t& allowed = context().state<AllowedSharedMemory>().bytes[kernel];
  if (bytes <= allowed) return;
  raise_limit(kernel, bytes);
  allowed = bytes;
}

}  // namespace tessera::gpu
