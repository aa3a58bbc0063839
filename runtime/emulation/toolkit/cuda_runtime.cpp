// The emulated CUDA runtime: the toolkit's calls, carried out by device_queue.h.
//
// A call that the toolkit would refuse is an error. So is a call with an undefined outcome.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/error.h"
#include "runtime/poison.h"

namespace tessera::emulation {
namespace {

thread_local int current_device = 0;

constexpr int kMultiprocessors = 4;
// As the toolkit gives them for NVIDIA's GPUs since Volta.
constexpr int kLeastPriority = 0, kGreatestPriority = -5;

void list_copy(std::size_t bytes) {
  list_launch(
      {.kernel = "cudaMemcpyAsync", .work = {.reads = whole(bytes), .writes = whole(bytes)}});
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

/// The kind of memory at an address.
struct Memory {
  enum { device, pinned, pageable } kind = pageable;
  unsigned devices = 0;  // a bit, of device memory
};

cudaError_t find_memory(Memory& memory, const void* data, std::size_t bytes, const char* call) {
  const Devices& devices = Devices::get();
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
  memory = {Memory::device, 1u << block->device};
  return cudaSuccess;
}

void list_peer_copy(const Memory& target, const Memory& source) {
  std::vector<PeerCopy>* const copies = Devices::get().peer_copies;
  const bool between_devices = target.kind == Memory::device && source.kind == Memory::device &&
                               target.devices != source.devices;
  if (copies == nullptr || !between_devices) return;
  copies->push_back({std::countr_zero(source.devices), std::countr_zero(target.devices)});
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  cudaError_t error = check_stream(stream);
  if (error == cudaSuccess && stream->device != current_device) {
    error = refuse(cudaErrorInvalidResourceHandle,
                   "the stream is device " + std::to_string(stream->device) +
                       "'s, the thread's device is " + std::to_string(current_device));
  }
  if (error != cudaSuccess) {
    throw Error(std::string("launch of a kernel: ") + cudaGetErrorString(error) + " (" +
                cudaGetErrorName(error) + ")");
  }
  devices.enqueue(*stream, {.work = std::move(work), .devices = 1u << stream->device});
}

SharedMemoryLimits shared_memory_limits(const void* kernel) {
  const Devices& devices = Devices::get();
  const auto lock = Devices::get().lock();
  SharedMemoryLimits limits;
  limits.block_bytes = find_architecture(devices.options().capability)->shared_bytes;
  const auto found = devices.dynamic_bytes.find({current_device, kernel});
  if (found != devices.dynamic_bytes.end()) limits.dynamic_bytes = found->second;
  return limits;
}

Gate::Gate() : point_(std::make_shared<Point>()) {}

void Gate::stop(cudaStream_t stream) {
  const auto lock = Devices::get().lock();
  Devices::get().enqueue(*stream, {.wait = point_});
}

void Gate::open() {
  const auto lock = Devices::get().lock();
  Devices::get().pass(*point_);
}

DeviceOptions device_options() {
  const auto lock = Devices::get().lock();
  return Devices::get().options();
}

void set_device_options(const DeviceOptions& options) {
  if (find_architecture(options.capability) == nullptr) {
    throw Error("the architecture sm_" + std::to_string(options.capability) +
                " is not emulated: choose 80, 86, 89 or 90");
  }
  Devices& devices = Devices::get();
  auto lock = devices.lock();
  devices.set_options(options, lock);
}

PeerCopies::PeerCopies() {
  const auto lock = Devices::get().lock();
  Devices::get().peer_copies = &copies_;
}

PeerCopies::~PeerCopies() {
  const auto lock = Devices::get().lock();
  Devices::get().peer_copies = nullptr;
}

std::vector<PeerCopy> PeerCopies::take() {
  const auto lock = Devices::get().lock();
  return std::exchange(copies_, {});
}

std::uint64_t host_waits() {
  const auto lock = Devices::get().lock();
  return Devices::get().host_waits;
}

void forget_failures() {
  const auto lock = Devices::get().lock();
  Devices::get().forget_failures();
}

std::string leaks() {
  const auto lock = Devices::get().lock();
  return Devices::get().leaks();
}

void mark_used(cudaStream_t stream, void* data, std::size_t bytes, std::size_t block_bytes) {
  const auto lock = Devices::get().lock();
  const auto work = [=] { unpoison_first(data, bytes, block_bytes); };
  const bool at_once = stream->destroyed || !Devices::get().failure(stream->device).empty();
  if (at_once) return work();
  Devices::get().enqueue(*stream, {.work = work, .devices = 1u << stream->device});
}

void mark_unused(cudaStream_t stream, void* data, std::size_t block_bytes) {
  const auto lock = Devices::get().lock();
  const auto work = [=] {
    unpoison(data, block_bytes);
    std::memset(data, 0xff, block_bytes);
    poison(data, block_bytes);
  };
  if (stream->destroyed) return poison(data, block_bytes);
  Devices::get().enqueue(*stream, {.work = work, .devices = 1u << stream->device});
}

}  // namespace tessera::emulation

using namespace tessera::emulation;

// --- Devices -------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_options().devices;
  return *count > 0 ? cudaSuccess : refuse(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_options().devices) return refuse(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
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
  const auto found = devices.dynamic_bytes.find({current_device, kernel});
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
  devices.dynamic_bytes[{current_device, kernel}] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
// Copies go from any device to any other. Kernels cannot access another device's memory.
cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int peer) {
  *possible = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return peer == current_device ? refuse(cudaErrorInvalidDevice) : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  auto lock = Devices::get().lock();
  ++Devices::get().host_waits;
  Devices::get().synchronize_device(current_device, lock);
  return refuse_failed(current_device);
}

// --- Memory --------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  *data = nullptr;
  if (const auto error = refuse_failed(current_device)) return error;
  if (bytes == 0) return cudaSuccess;
  *data = devices.memory.allocate(current_device, bytes, devices.options().memory_bytes);
  return *data != nullptr ? cudaSuccess : refuse(cudaErrorMemoryAllocation);
}

// Waits for the device, as the toolkit's does.
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  Devices& devices = Devices::get();
  auto lock = devices.lock();
  const DeviceMemory::Block* const block = devices.memory.find(data);
  if (block == nullptr || block->data != data) {
    return refuse(cudaErrorInvalidValue,
                  "cudaFree: the address is not the beginning of a block of device memory");
  }
  const int device = block->device;
  devices.synchronize_device(device, lock);
  if (devices.memory.find(data) != nullptr) devices.memory.release(data);
  return refuse_failed(device);
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  constexpr std::size_t kAlignment = 512;
  const auto lock = Devices::get().lock();
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
// the toolkit's manual).
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  Devices& devices = Devices::get();
  auto lock = devices.lock();
  if (const auto error = check_stream(stream)) return error;
  Memory target, source;
  if (const auto error = find_memory(target, to, bytes, "cudaMemcpyAsync")) return error;
  if (const auto error = find_memory(source, from, bytes, "cudaMemcpyAsync")) return error;
  const auto* const first = static_cast<const std::byte*>(from);
  if (to < first + bytes && first < static_cast<std::byte*>(to) + bytes) {
    return refuse(cudaErrorInvalidValue, "cudaMemcpyAsync: the ranges overlap");
  }
  list_peer_copy(target, source);
  Item item{.devices = target.devices | source.devices};
  if (source.kind == Memory::pageable) {
    item.work = [=, staged = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(to, staged.data(), bytes);
      list_copy(bytes);
    };
  } else {
    item.work = [=] {
      std::memcpy(to, from, bytes);
      list_copy(bytes);
    };
  }
  devices.enqueue(*stream, std::move(item));
  const bool between_hosts = target.kind != Memory::device && source.kind != Memory::device;
  if (target.kind == Memory::pageable || between_hosts) {
    ++devices.host_waits;
    devices.synchronize(*stream, lock);
  }
  return refuse_failed(stream->device);
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  if (const auto error = check_stream(stream)) return error;
  Memory memory;
  if (const auto error = find_memory(memory, data, bytes, "cudaMemsetAsync")) return error;
  if (memory.kind == Memory::pageable) {
    return refuse(cudaErrorInvalidValue, "cudaMemsetAsync: the memory is on the host's heap");
  }
  const auto work = [=] {
    std::memset(data, value, bytes);
    list_launch({.kernel = "cudaMemsetAsync", .work = {.writes = whole(bytes)}});
  };
  devices.enqueue(*stream, {.work = work, .devices = memory.devices});
  return cudaSuccess;
}

// --- Streams and events --------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, kLeastPriority);
}

// A priority outside the range is the nearest in it, as with the toolkit. It changes no order here:
// any order that the streams' events allow may happen on a GPU.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const auto lock = Devices::get().lock();
  if (const auto error = refuse_failed(current_device)) return error;
  if (flags != cudaStreamNonBlocking) {
    return refuse(cudaErrorInvalidValue,
                  "streams that wait for the default stream are not emulated");
  }
  *stream = Devices::get().make_stream(current_device);
  (*stream)->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_stream(stream)) return error;
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = kLeastPriority;
  *greatest = kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  auto lock = Devices::get().lock();
  const cudaError_t error = check_stream(stream);
  if (error == cudaErrorInvalidResourceHandle) return error;
  Devices::get().synchronize(*stream, lock);
  stream->destroyed = true;
  return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  auto lock = Devices::get().lock();
  if (const auto error = check_stream(stream)) return error;
  ++Devices::get().host_waits;
  Devices::get().synchronize(*stream, lock);
  return refuse_failed(stream->device);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_stream(stream)) return error;
  if (const auto error = check_event(event)) return error;
  if (event->point == nullptr) return cudaSuccess;  // never recorded: nothing to wait for
  Devices::get().enqueue(*stream, {.wait = event->point});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const auto lock = Devices::get().lock();
  if (const auto error = refuse_failed(current_device)) return error;
  *event = Devices::get().make_event(current_device, (flags & cudaEventDisableTiming) == 0);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_event(event)) return error;
  event->destroyed = true;
  event->point = nullptr;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_stream(stream)) return error;
  if (const auto error = check_event(event)) return error;
  if (event->device != stream->device) {
    return refuse(cudaErrorInvalidResourceHandle,
                  "the event belongs to another device than the stream");
  }
  event->point = std::make_shared<Point>();
  Devices::get().enqueue(*stream, {.pass = event->point});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto lock = Devices::get().lock();
  if (const auto error = check_event(event)) return error;
  const bool passed = event->point == nullptr || Devices::get().query(event->point);
  if (const auto error = refuse_failed(event->device)) return error;
  return passed ? cudaSuccess : refuse(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  auto lock = Devices::get().lock();
  if (const auto error = check_event(event)) return error;
  if (event->point != nullptr) {
    ++Devices::get().host_waits;
    const PointHandle point = event->point;
    Devices::get().run_until(point, lock);
  }
  return refuse_failed(event->device);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto lock = Devices::get().lock();
  for (cudaEvent_t event : {start, end}) {
    if (const auto error = check_event(event)) return error;
    if (!event->timed || event->point == nullptr) {
      return refuse(cudaErrorInvalidResourceHandle, "the event was not recorded or has no time");
    }
    if (!event->point->passed) return refuse(cudaErrorNotReady);
  }
  const auto elapsed = end->point->time - start->point->time;
  *milliseconds = std::chrono::duration<float, std::milli>(elapsed).count();
  return cudaSuccess;
}
