// The emulated device's own interface: launches, options, and marks of memory in use.
#include <cstring>
#include <string>
#include <utility>

#include "runtime/emulation/toolkit/capture.h"
#include "runtime/emulation/toolkit/checks.h"
#include "runtime/emulation/toolkit/cuda_error.h"
#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/error.h"
#include "runtime/poison.h"

namespace tessera::emulation {

void enqueue(cudaStream_t stream, std::function<void()> work,
             const std::vector<std::uintptr_t>& words, bool early) {
  Devices& devices = Devices::get();
  const auto lock = devices.lock();
  cudaError_t error = check_work(stream);
  if (error == cudaSuccess && stream->device != current_device()) {
    error = refuse(cudaErrorInvalidResourceHandle,
                   "the stream is device " + std::to_string(stream->device) +
                       "'s, the thread's device is " + std::to_string(current_device()));
  }
  if (error != cudaSuccess) {
    throw Error(std::string("launch of a kernel: ") + cudaGetErrorString(error) + " (" +
                cudaGetErrorName(error) + ")");
  }
  ++devices.host_calls.launches;
  submit(*stream, {.run = std::move(work),
                   .devices = devices.windows.reached_by(stream->device, words),
                   .uses = uses_of(*stream, words),
                   .early = early});
}

SharedMemoryLimits shared_memory_limits(const void* kernel) {
  const Devices& devices = Devices::get();
  const auto lock = Devices::get().lock();
  SharedMemoryLimits limits;
  limits.block_bytes = find_architecture(devices.options().capability)->shared_bytes;
  const auto found = devices.dynamic_bytes.find({current_device(), kernel});
  if (found != devices.dynamic_bytes.end()) limits.dynamic_bytes = found->second;
  return limits;
}

Gate::Gate() : point_(std::make_shared<Point>()) {}

void Gate::stop(cudaStream_t stream) {
  const auto lock = Devices::get().lock();
  submit(*stream, [point = point_] { return std::vector{Item{.wait = point}}; });
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
                " is not emulated: choose 80, 86, 89, 90, 100 or 120");
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

int waiting_host_threads() {
  const auto lock = Devices::get().lock();
  return Devices::get().waiting_threads();
}

std::uint64_t host_waits() {
  const auto lock = Devices::get().lock();
  return Devices::get().host_calls.waits;
}

std::uint64_t host_calls() {
  const auto lock = Devices::get().lock();
  return Devices::get().host_calls.work();
}

HostCalls host_calls_by_kind() {
  const auto lock = Devices::get().lock();
  return Devices::get().host_calls;
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
  submit(*stream, {.run = work, .devices = 1u << stream->device, .mark = true});
}

void mark_unused(cudaStream_t stream, void* data, std::size_t block_bytes) {
  const auto lock = Devices::get().lock();
  const auto work = [=] {
    unpoison(data, block_bytes);
    std::memset(data, 0xff, block_bytes);
    poison(data, block_bytes);
  };
  if (stream->destroyed) return poison(data, block_bytes);
  submit(*stream, {.run = work, .devices = 1u << stream->device, .mark = true});
}

}  // namespace tessera::emulation
