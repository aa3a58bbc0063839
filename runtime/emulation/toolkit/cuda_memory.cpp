// The emulated CUDA runtime: memory, copies and fills.
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/checks.h"
#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"

using namespace tessera::emulation;

namespace {

void list_copy(std::size_t bytes) {
  list_launch(
      {.kernel = "cudaMemcpyAsync", .work = {.reads = whole(bytes), .writes = whole(bytes)}});
}

void list_peer_copy(const Memory& target, const Memory& source) {
  std::vector<PeerCopy>* const copies = Devices::get().peer_copies;
  const bool between_devices = target.kind == Memory::device && source.kind == Memory::device &&
                               target.devices != source.devices;
  if (copies == nullptr || !between_devices) return;
  copies->push_back({std::countr_zero(source.devices), std::countr_zero(target.devices)});
}

}  // namespace

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  *data = nullptr;
  if (const auto error = check_allowed("cudaMalloc")) return error;
  if (const auto error = refuse_failed(current_device())) return error;
  if (bytes == 0) return cudaSuccess;
  if (const auto error = check_peers(current_device(), "cudaMalloc")) return error;
  *data = devices.memory.allocate(current_device(), bytes, devices.options().memory_bytes);
  return *data != nullptr ? cudaSuccess : refuse(cudaErrorMemoryAllocation);
}

// Waits for the device, as the toolkit's does.
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  Devices& devices = Devices::get();
  auto lock = devices.lock();
  if (const auto error = check_allowed("cudaFree")) return error;
  const DeviceMemory::Block* const block = devices.memory.find(data);
  if (block == nullptr || block->data != data) {
    return refuse(cudaErrorInvalidValue,
                  "cudaFree: the address is not the beginning of a block of device memory");
  }
  if (devices.windows.is_memory(data)) {
    return refuse(cudaErrorInvalidValue, "cudaFree: the memory is ncclMemAlloc's");
  }
  const int device = block->device;
  if (const auto error = check_peers(device, "cudaFree")) return error;
  devices.synchronize_device(device, lock);
  if (devices.memory.find(data) != nullptr) devices.memory.release(data);
  return refuse_failed(device);
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  constexpr std::size_t kAlignment = 512;
  const auto lock = Devices::get().lock();
  if (const auto error = check_allowed("cudaMallocHost")) return error;
  if (const auto error = check_peers(current_device(), "cudaMallocHost")) return error;
  // Not rounded up: the sanitizer knows the exact end.
  if (posix_memalign(data, kAlignment, bytes) != 0) return refuse(cudaErrorMemoryAllocation);
  std::memset(*data, 0xff, bytes);
  Devices::get().host_block(*data, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  if (data == nullptr) return cudaSuccess;
  Devices& devices = Devices::get();
  auto lock = devices.lock();
  if (const auto error = check_allowed("cudaFreeHost")) return error;
  if (const auto error = check_peers(current_device(), "cudaFreeHost")) return error;
  for (int device = 0; device < devices.options().devices; ++device) {
    devices.synchronize_device(device, lock);
  }
  if (!devices.forget_host_block(data)) {
    return refuse(cudaErrorInvalidValue,
                  "cudaFreeHost: the address is not the beginning of a block of host memory");
  }
  std::free(data);
  return cudaSuccess;
}

// Pinned memory is read and written when the copy runs. Pageable memory is read at once, into the
// driver's buffer. A copy to pageable memory makes the host wait ("API synchronization behavior" in
// the toolkit's manual). A capture takes neither.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  Devices& devices = Devices::get();
  auto lock = devices.lock();
  if (const auto error = check_work(stream)) return error;
  Memory target, source;
  if (const auto error = find_memory(target, to, bytes, "cudaMemcpyAsync")) return error;
  if (const auto error = find_memory(source, from, bytes, "cudaMemcpyAsync")) return error;
  const auto* const first = static_cast<const std::byte*>(from);
  if (to < first + bytes && first < static_cast<std::byte*>(to) + bytes) {
    return refuse(cudaErrorInvalidValue, "cudaMemcpyAsync: the ranges overlap");
  }
  const bool pageable = target.kind == Memory::pageable || source.kind == Memory::pageable;
  if (stream->capture != nullptr && pageable) {
    return break_capture(*stream, cudaErrorStreamCaptureUnsupported,
                         "cudaMemcpyAsync: a capture takes no pageable memory of the host");
  }
  ++devices.host_calls.copies;
  list_peer_copy(target, source);
  Work work{.devices = target.devices | source.devices, .uses = {target.use, source.use}};
  if (source.kind == Memory::pageable) {
    work.run = [=, staged = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(to, staged.data(), bytes);
      list_copy(bytes);
    };
  } else {
    work.run = [=] {
      std::memcpy(to, from, bytes);
      list_copy(bytes);
    };
  }
  submit(*stream, std::move(work));
  if (stream->capture != nullptr) return cudaSuccess;
  const bool between_hosts = target.kind != Memory::device && source.kind != Memory::device;
  if (target.kind == Memory::pageable || between_hosts) {
    ++devices.host_calls.waits;
    devices.synchronize(*stream, lock);
  }
  return refuse_failed(stream->device);
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  if (const auto error = check_work(stream)) return error;
  Memory memory;
  if (const auto error = find_memory(memory, data, bytes, "cudaMemsetAsync")) return error;
  if (memory.kind == Memory::pageable) {
    return refuse(cudaErrorInvalidValue, "cudaMemsetAsync: the memory is on the host's heap");
  }
  const auto work = [=] {
    std::memset(data, value, bytes);
    list_launch({.kernel = "cudaMemsetAsync", .work = {.writes = whole(bytes)}});
  };
  ++devices.host_calls.copies;
  submit(*stream, {.run = work, .devices = memory.devices, .uses = {memory.use}});
  return cudaSuccess;
}
