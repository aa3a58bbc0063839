// The emulated CUDA runtime: devices, and the attributes of kernels.
#include <string>

#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/checks.h"
#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"

using namespace tessera::emulation;

namespace {

// A small GPU, so that small tests have more work than it takes at a time.
constexpr int kL2CacheBytes = 1 << 20;

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_options().devices;
  return *count > 0 ? cudaSuccess : refuse(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_options().devices) return refuse(cudaErrorInvalidDevice);
  current_device() = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const DeviceOptions options = device_options();
  if (device < 0 || device >= options.devices) return refuse(cudaErrorInvalidDevice);
  *properties = {.name = "emulated GPU",
                 .totalGlobalMem = options.memory_bytes,
                 .major = options.capability / 10,
                 .minor = options.capability % 10,
                 .multiProcessorCount = kMultiprocessors};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const DeviceOptions options = device_options();
  if (device < 0 || device >= options.devices) return refuse(cudaErrorInvalidDevice);
  const Architecture& architecture = *find_architecture(options.capability);
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kDefaultSharedBytes;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(architecture.shared_bytes);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(architecture.multiprocessor_shared_bytes);
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = kL2CacheBytes;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = options.capability / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = options.capability % 10;
      return cudaSuccess;
    case cudaDevAttrClockRate:
      *value = 0;  // no clock, so no peak rate
      return cudaSuccess;
  }
  return refuse(cudaErrorInvalidValue, "the attribute is not emulated");
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  const auto found = devices.dynamic_bytes.find({current_device(), kernel});
  const std::size_t bytes = found == devices.dynamic_bytes.end() ? 0 : found->second;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return refuse(cudaErrorInvalidValue, "the attribute is not emulated");
  }
  const std::size_t most = find_architecture(devices.options().capability)->shared_bytes;
  if (value < 0 || static_cast<std::size_t>(value) > most) {
    return refuse(cudaErrorInvalidValue, "a block can have " + std::to_string(most) +
                                             " bytes of shared memory, not " +
                                             std::to_string(value));
  }
  devices.dynamic_bytes[{current_device(), kernel}] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
// Copies go from any device to any other. Kernels cannot access another device's memory.
cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int peer) {
  *possible = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (peer == current_device()) return refuse(cudaErrorInvalidDevice);
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  devices.peer_waits.link(current_device(), peer);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  auto lock = Devices::get().lock();
  if (const auto error = check_no_capture(current_device(), "cudaDeviceSynchronize")) return error;
  ++Devices::get().host_calls.waits;
  Devices::get().synchronize_device(current_device(), lock);
  return refuse_failed(current_device());
}
