// The emulated device's own interface, next to the toolkit's: for launches, libraries and tests.
//
// A stream's work is not carried out when it is queued. By default it runs when the host waits for
// it, on the thread that waits, and only as far as that wait requires. So a result read too early,
// a missing wait between streams and a host buffer reused too soon show, and show every time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "runtime/emulation/device/launch.h"

namespace tessera::emulation {

/// Queues `work` as a kernel launch, or records it if the stream captures. `words`: those of the
/// kernel's parameters. A graph is refused to run when device memory at such an address was freed
/// after the capture. `early`: Item::early. Raises Error if the stream belongs to another device than the
/// calling thread's, as the toolkit does. An exception in `work` becomes the device's failure:
/// cudaErrorLaunchFailure at the next synchronizing call and at every call after it.
void enqueue(cudaStream_t stream, std::function<void()> work,
             const std::vector<std::uintptr_t>& words = {}, bool early = false);

/// A place at which streams stop until it is opened, as at a call of a GPU that never answers.
class Gate {
 public:
  Gate();
  /// Later work of the stream does not run before the gate is opened.
  void stop(cudaStream_t stream);
  void open();

 private:
  std::shared_ptr<struct Point> point_;
};

/// The time at which queued work is carried out.
enum class Progress {
  eager,     // at once: the order of the host's calls
  lazy,      // when the host waits, and no more than it waits for
  shuffled,  // some at any call, from streams that a seed chooses: any order that is allowed
};

struct DeviceOptions {
  Progress progress = Progress::lazy;
  std::uint64_t seed = 1;
  int devices = 1;
  /// The memory of each device.
  std::size_t memory_bytes = std::size_t{8} << 30;
  /// The compute capability: 80, 86, 89, 90, 100 or 120. It decides how much shared memory a block can have.
  int capability = 90;
  /// The time that products of cuBLASLt take besides, by the way that an algorithm adds: a test makes
  /// one of them the slower. Only events tell this time; it does not pass.
  struct {
    std::chrono::milliseconds whole{0}, in_halves{0};
  } product_delays;
  /// Products of 8-bit numbers keep as few bits of a sum as Hopper's tensor cores (narrow_sum.h). Else they are f32.
  bool narrow_sums = false;
};

DeviceOptions device_options();
/// Carries out all queued work, unlinks the devices from one another, then sets the options. Another
/// capability resets the attributes of kernels. Raises Error for an architecture that is not emulated.
void set_device_options(const DeviceOptions& options);

/// The limits for a launch of `kernel` on the calling thread's device.
SharedMemoryLimits shared_memory_limits(const void* kernel);

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

/// Calls by which the host has waited for a stream, an event or a device so far, and copies that made
/// it wait.
std::uint64_t host_waits();

/// Calls by which the host has given work to a device so far: launches, copies, fills, events that it
/// records or lets a stream wait for, operations of NCCL. The launch of a graph is one.
std::uint64_t host_calls();

/// Threads of the host that wait for work which cannot run yet, such as that behind a closed gate.
int waiting_host_threads();

/// Forgets all failures. On a GPU only the end of the process does.
void forget_failures();

/// Lists objects that were not freed: "2 blocks of device memory (768 bytes), 1 streams". Empty if
/// there are none. A program that ends with a leak prints the list and exits with 1.
std::string leaks();

/// A caching allocator reports its use of a block of device memory, in the stream's order: from here
/// on its first `bytes` bytes are in use (mark_used), or none are (mark_unused). The address sanitizer
/// reports accesses to other bytes. Without it, bytes that are not in use read as 0xff.
void mark_used(cudaStream_t stream, void* data, std::size_t bytes, std::size_t block_bytes);
void mark_unused(cudaStream_t stream, void* data, std::size_t block_bytes);

}  // namespace tessera::emulation
