#include "kernels/cuda/device_attributes.h"

#include <cuda_runtime_api.h>

#include "runtime/context.h"
#include "runtime/cuda/status.h"

namespace tessera::gpu {
namespace {

/// Does this build have code for the architecture 90a?
#if defined(TESSERA_SM90A)
constexpr bool kHasSm90a = true;
#else
constexpr bool kHasSm90a = false;
#endif

struct DeviceAttributes {
  int shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  int multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  int l2_bytes = attribute(cudaDevAttrL2CacheSize);
  int major = attribute(cudaDevAttrComputeCapabilityMajor);
  int minor = attribute(cudaDevAttrComputeCapabilityMinor);

 private:
  static int attribute(cudaDeviceAttr which) {
    int device = 0, value = 0;
    cuda::check_status(cudaGetDevice(&device), "cudaGetDevice");
    cuda::check_status(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    return value;
  }
};

const DeviceAttributes& attributes() {
  return context().state<DeviceAttributes>();
}

}  // namespace

bool has_hopper() {
  return kHasSm90a && attributes().major == 9 && attributes().minor == 0;
}

bool has_fp8() {
  return attributes().major > 8 || (attributes().major == 8 && attributes().minor == 9);
}

bool has_fp8_blocks() {
  return attributes().major == 9 && attributes().minor == 0;
}

bool has_early_launches() {
  return attributes().major >= 9;
}

bool has_fast_f64() {
  const int major = attributes().major;
  return attributes().minor == 0 && (major == 8 || major == 9 || major == 10);
}

std::size_t shared_memory_limit() {
  return static_cast<std::size_t>(attributes().shared_bytes);
}

int multiprocessors() {
  return attributes().multiprocessors;
}

std::int64_t l2_cache_bytes() {
  return attributes().l2_bytes;
}

}  // namespace tessera::gpu
