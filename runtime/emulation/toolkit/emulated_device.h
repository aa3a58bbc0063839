// The emulated runtime's own words, beside the toolkit's interface: for whoever gives it work
// (kernel launches, matrix products) and for tests.
//
// A stream's work is not carried out when it is queued. By default it runs when the host waits for
// it, on the thread that waits, and then only what that wait requires. So a result read too early,
// a missing wait between streams or a host buffer reused too soon shows, and shows every time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace tessera::emulation {

/// Queues `work`, as a kernel launch would be. Raises Error where the toolkit would refuse: the
/// stream is none of the calling thread's device. What `work` throws becomes the device's failure:
/// cudaErrorLaunchFailure at the next synchronizing call and ever after.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// When queued work is carried out.
enum class Progress {
  eager,     // at once: the order of the host's calls
  lazy,      // when the host waits, and only what it waits for
  shuffled,  // some at any call, from streams that a seed chooses: anything that may happen
};

struct DeviceOptions {
  Progress progress = Progress::lazy;
  std::uint64_t seed = 1;
  int devices = 1;
  /// Of each device.
  std::size_t memory_bytes = std::size_t{8} << 30;
};

DeviceOptions device_options();
/// First carries out what is queued.
void set_device_options(const DeviceOptions& options);

/// Sets options for the scope.
class DeviceOptionsGuard {
 public:
  explicit DeviceOptionsGuard(const DeviceOptions& options) : previous_(device_options()) {
    set_device_options(options);
  }
  ~DeviceOptionsGuard() { set_device_options(previous_); }
  DeviceOptionsGuard(const DeviceOptionsGuard&) = delete;
  DeviceOptionsGuard& operator=(const DeviceOptionsGuard&) = delete;

 private:
  DeviceOptions previous_;
};

/// Forgets a failure, which on a GPU only the end of the process does.
void forget_failures();

/// What has been made and not given back, as "2 blocks of device memory (768 bytes), 1 stream";
/// empty if nothing. A program that ends so says it and exits with 1.
std::string leaks();

/// A caching allocator tells what it does with blocks of device memory, in the stream's order:
/// `bytes` of a block are in use from here on; nothing of it is. Whatever touches other bytes is
/// reported by the address sanitizer; without it, what is not in use reads as 0xff.
void lend(cudaStream_t stream, void* data, std::size_t bytes, std::size_t block_bytes);
void take_back(cudaStream_t stream, void* data, std::size_t block_bytes);

}  // namespace tessera::emulation
