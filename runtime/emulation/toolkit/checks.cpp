#include "runtime/emulation/toolkit/checks.h"

#include <string>

#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"

namespace tessera::emulation {

int& current_device() {
  thread_local int device = 0;
  return device;
}

cudaError_t refuse_failed(int device) {
  const std::string why = Devices::get().failure(device);
  return why.empty() ? cudaSuccess : refuse(cudaErrorLaunchFailure, why);
}

cudaError_t check_stream(cudaStream_t stream) {
  if (stream == nullptr) {
    return refuse(cudaErrorInvalidResourceHandle, "the default stream is not emulated");
  }
  if (stream->destroyed) {
    return refuse(cudaErrorInvalidResourceHandle, "the stream was destroyed");
  }
  return refuse_failed(stream->device);
}

cudaError_t check_event(cudaEvent_t event) {
  if (event == nullptr || event->destroyed) {
    return refuse(cudaErrorInvalidResourceHandle, "the event was destroyed or is null");
  }
  return cudaSuccess;
}

cudaError_t find_memory(Memory& memory, const void* data, std::size_t bytes, const char* call) {
  const Devices& devices = Devices::get();
  memory.use = {data, bytes, 0};
  if (!devices.memory.covers(data)) {
    memory.kind = devices.is_host_block(data, bytes) ? Memory::pinned : Memory::pageable;
    return cudaSuccess;
  }
  const DeviceMemory::Block* const block = devices.memory.find(data);
  if (block == nullptr) {
    return refuse(cudaErrorInvalidValue, std::string(call) + ": the memory was freed");
  }
  if (static_cast<const std::byte*>(data) + bytes > block->data + block->bytes) {
    return refuse(cudaErrorInvalidValue, std::string(call) +
                                             ": the range goes past the end of a block of " +
                                             std::to_string(block->bytes) + " bytes");
  }
  memory = {Memory::device, 1u << block->device, {data, bytes, block->number}};
  return cudaSuccess;
}

}  // namespace tessera::emulation
