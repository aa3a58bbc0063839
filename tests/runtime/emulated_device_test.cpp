// The emulated CUDA runtime keeps the toolkit's promises, and promises no more.
#include "runtime/emulation/toolkit/emulated_device.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/emulation/toolkit/device_queue.h"
#include "runtime/error.h"
#include "tests/support/child.h"

namespace tessera {
namespace {

using Catch::Contains;
using emulation::DeviceOptionsGuard;
using emulation::Progress;

void check(cudaError_t status) {
  INFO(cudaGetErrorString(status));
  REQUIRE(status == cudaSuccess);
}

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(handle); }
  operator cudaStream_t() const { return handle; }
};

struct Event {
  cudaEvent_t handle = nullptr;
  explicit Event(unsigned flags = cudaEventDefault) {
    check(cudaEventCreateWithFlags(&handle, flags));
  }
  ~Event() { cudaEventDestroy(handle); }
  operator cudaEvent_t() const { return handle; }
};

/// `count` integers of device (or pinned host) memory.
struct Ints {
  int* data = nullptr;
  bool on_host;
  explicit Ints(std::size_t count, bool on_host = false) : on_host(on_host) {
    void** const place = reinterpret_cast<void**>(&data);
    check(on_host ? cudaMallocHost(place, 4 * count) : cudaMalloc(place, 4 * count));
  }
  ~Ints() { on_host ? cudaFreeHost(data) : cudaFree(data); }
};

void copy(int* to, const int* from, std::size_t count, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, 4 * count, cudaMemcpyDefault, stream));
}

int value_of(const int* device, cudaStream_t stream) {
  int value = 0;
  copy(&value, device, 1, stream);
  return value;
}

void set(int* device, int value, cudaStream_t stream) {
  emulation::enqueue(stream, [=] { *device = value; });
}

}  // namespace

TEST_CASE("work runs when the host waits for it, and only as far as that wait requires") {
  const Stream a, b;
  std::vector<char> order;
  emulation::enqueue(a, [&] { order.push_back('a'); });
  emulation::enqueue(b, [&] { order.push_back('b'); });
  const Event between(cudaEventDisableTiming);
  check(cudaEventRecord(between, b));
  emulation::enqueue(b, [&] { order.push_back('c'); });
  REQUIRE(order.empty());
  check(cudaEventSynchronize(between));
  REQUIRE(order == std::vector{'b'});
  check(cudaStreamWaitEvent(a, between, 0));
  check(cudaStreamSynchronize(a));
  REQUIRE(order == std::vector{'b', 'a'});
  check(cudaDeviceSynchronize());
  REQUIRE(order == std::vector{'b', 'a', 'c'});
}

TEST_CASE("eager work runs at once") {
  const DeviceOptionsGuard eager({.progress = Progress::eager});
  const Stream stream;
  int runs = 0;
  emulation::enqueue(stream, [&] { ++runs; });
  REQUIRE(runs == 1);
}

TEST_CASE("a wait is for the event's last recording before the wait was queued") {
  const Stream a, b;
  std::vector<int> order;
  const Event event;
  check(cudaStreamWaitEvent(b, event, 0));  // never recorded: no wait
  emulation::enqueue(a, [&] { order.push_back(1); });
  check(cudaEventRecord(event, a));
  check(cudaStreamWaitEvent(b, event, 0));
  emulation::enqueue(a, [&] { order.push_back(2); });
  check(cudaEventRecord(event, a));
  emulation::enqueue(b, [&] { order.push_back(3); });
  check(cudaStreamSynchronize(b));
  REQUIRE(order == std::vector{1, 3});
  check(cudaEventSynchronize(event));
  REQUIRE(order == std::vector{1, 3, 2});
}

TEST_CASE("a query says no before it says yes") {
  const Stream stream;
  const Event event;
  check(cudaEventQuery(event));
  for (int i = 0; i < 3; ++i) emulation::enqueue(stream, [] {});
  check(cudaEventRecord(event, stream));
  REQUIRE(cudaEventQuery(event) == cudaErrorNotReady);
  int queries = 1;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++queries;
  REQUIRE(queries == 4);
}

TEST_CASE("events measure the time between them") {
  const Stream stream;
  const Event start, stop, untimed(cudaEventDisableTiming);
  check(cudaEventRecord(start, stream));
  emulation::enqueue(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
  check(cudaEventRecord(stop, stream));
  check(cudaEventRecord(untimed, stream));
  float milliseconds = 0.0f;
  REQUIRE(cudaEventElapsedTime(&milliseconds, start, stop) == cudaErrorNotReady);
  check(cudaStreamSynchronize(stream));
  check(cudaEventElapsedTime(&milliseconds, start, stop));
  REQUIRE(milliseconds >= 3.0f);
  REQUIRE(cudaEventElapsedTime(&milliseconds, start, untimed) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("pinned memory is read when the copy runs, pageable memory at once") {
  const Stream stream;
  const Ints device(2), pinned(1, /*on_host=*/true);
  int pageable = 5;
  *pinned.data = 5;
  copy(device.data, pinned.data, 1, stream);
  copy(device.data + 1, &pageable, 1, stream);
  *pinned.data = pageable = 6;
  REQUIRE(value_of(device.data, stream) == 6);  // too early
  REQUIRE(value_of(device.data + 1, stream) == 5);
}

TEST_CASE(
    "a copy to pinned memory is under way until the host waits, one to pageable memory is not") {
  const Stream stream;
  const Ints device(1), pinned(1, /*on_host=*/true);
  set(device.data, 5, stream);
  copy(pinned.data, device.data, 1, stream);
  REQUIRE(*pinned.data == -1);
  check(cudaStreamSynchronize(stream));
  REQUIRE(*pinned.data == 5);
  set(device.data, 6, stream);
  REQUIRE(value_of(device.data, stream) == 6);
}

TEST_CASE("new memory reads as 0xff, also at addresses that were used before") {
  const Stream stream;
  for (int i = 0; i < 3; ++i) {
    const Ints device(1000);
    for (const int j : {0, 999}) REQUIRE(value_of(device.data + j, stream) == -1);
    check(cudaMemsetAsync(device.data, 0, 4000, stream));
    REQUIRE(value_of(device.data + 999, stream) == 0);
  }
}

TEST_CASE("an allocation beyond the device's memory is refused") {
  const DeviceOptionsGuard small({.memory_bytes = 1000});
  const Ints first(200);
  void* second = nullptr;
  REQUIRE(cudaMalloc(&second, 201) == cudaErrorMemoryAllocation);
  REQUIRE(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE(cudaGetLastError() == cudaSuccess);
  REQUIRE(second == nullptr);
  check(cudaMalloc(&second, 200));
  check(cudaFree(second));
}

TEST_CASE("cudaFree waits for the device") {
  const Stream stream;
  Ints pinned(1, /*on_host=*/true);
  int* device = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&device), 4));
  set(device, 9, stream);
  copy(pinned.data, device, 1, stream);
  check(cudaFree(device));
  REQUIRE(*pinned.data == 9);
}

TEST_CASE("wrong pointers are refused with the reason") {
  const Stream stream;
  const Ints device(10);
  int host = 0;
  const auto refused = [](cudaError_t status, const std::string& why) {
    REQUIRE(status == cudaErrorInvalidValue);
    REQUIRE_THAT(cudaGetErrorString(status), Contains(why));
  };
  refused(cudaMemcpyAsync(device.data + 5, device.data, 24, cudaMemcpyDefault, stream),
          "past the end of a block of 40 bytes");
  refused(cudaMemcpyAsync(device.data + 1, device.data, 8, cudaMemcpyDefault, stream),
          "the ranges overlap");
  check(cudaMemcpyAsync(device.data + 2, device.data, 8, cudaMemcpyDefault, stream));
  refused(cudaMemsetAsync(device.data, 0, 41, stream), "past the end of a block of 40 bytes");
  refused(cudaMemsetAsync(&host, 0, 4, stream), "the host's heap");
  refused(cudaFree(device.data + 1), "not the beginning of a block of device memory");
  refused(cudaFreeHost(&host), "not the beginning of a block of host memory");
  void* freed = nullptr;
  check(cudaMalloc(&freed, 100));
  check(cudaFree(freed));
  refused(cudaFree(freed), "not the beginning of a block of device memory");
  refused(cudaMemcpyAsync(&host, freed, 4, cudaMemcpyDefault, stream), "the memory was freed");
}

TEST_CASE("handles that were destroyed, and the default stream, are refused") {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  bool ran = false;
  emulation::enqueue(stream, [&] { ran = true; });
  check(cudaStreamDestroy(stream));
  REQUIRE(ran);
  REQUIRE(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  REQUIRE_THROWS_WITH(emulation::enqueue(stream, [] {}), Contains("the stream was destroyed"));
  REQUIRE_THROWS_WITH(emulation::enqueue(nullptr, [] {}), Contains("the default stream"));
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  check(cudaEventDestroy(event));
  REQUIRE(cudaEventSynchronize(event) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaStreamCreateWithFlags(&stream, 0) == cudaErrorInvalidValue);
}

TEST_CASE("an exception in a kernel fails the device for good") {
  const Stream stream;
  const Event event;
  const Ints device(1);
  bool ran = false;
  emulation::enqueue(stream, [] { throw std::runtime_error("thread 3 has had enough"); });
  emulation::enqueue(stream, [&] { ran = true; });
  check(cudaEventRecord(event, stream));
  REQUIRE(cudaEventSynchronize(event) == cudaErrorLaunchFailure);
  REQUIRE_THAT(cudaGetErrorString(cudaErrorLaunchFailure), Contains("thread 3 has had enough"));
  for (int i = 0; i < 2; ++i) REQUIRE(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  void* more = nullptr;
  REQUIRE(cudaMalloc(&more, 4) == cudaErrorLaunchFailure);
  REQUIRE_THROWS_WITH(emulation::enqueue(stream, [] {}), Contains("thread 3 has had enough"));
  REQUIRE_FALSE(ran);
  emulation::forget_failures();
  check(cudaStreamSynchronize(stream));
  REQUIRE_FALSE(ran);
}

TEST_CASE("every device has its own memory, streams and events, and copies go between devices") {
  const DeviceOptionsGuard two({.devices = 2});
  int count = 0;
  check(cudaGetDeviceCount(&count));
  REQUIRE(count == 2);
  REQUIRE(cudaSetDevice(2) == cudaErrorInvalidDevice);
  const Stream first;
  const Ints here(1);
  check(cudaSetDevice(1));
  {
    const Stream second;
    const Ints there(1);
    const Event event;
    REQUIRE(cudaEventRecord(event, first) == cudaErrorInvalidResourceHandle);
    REQUIRE_THROWS_WITH(emulation::enqueue(first, [] {}), Contains("the thread's device is 1"));
    set(there.data, 8, second);
    check(cudaEventRecord(event, second));
    check(cudaStreamWaitEvent(first, event, 0));
    copy(here.data, there.data, 1, first);
    REQUIRE(value_of(here.data, first) == 8);
  }
  check(cudaSetDevice(0));
}

TEST_CASE("a machine without GPUs has no device") {
  const DeviceOptionsGuard none({.devices = 0});
  int count = 5;
  REQUIRE(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  REQUIRE(count == 0);
}

TEST_CASE("shuffled: a missing wait shows under some seed, and ordered work stays ordered") {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const DeviceOptionsGuard shuffled({.progress = Progress::shuffled, .seed = seed});
    const Stream a, b;
    const Event event;
    const Ints source(1), with_wait(1), without(1);
    set(source.data, 7, a);
    copy(without.data, source.data, 1, b);  // no wait for a
    check(cudaEventRecord(event, a));
    check(cudaStreamWaitEvent(b, event, 0));
    copy(with_wait.data, source.data, 1, b);
    REQUIRE(value_of(with_wait.data, b) == 7);
    early += value_of(without.data, b) != 7;
  }
  REQUIRE(early > 5);
  REQUIRE(early < 35);
}

TEST_CASE("one seed gives one order") {
  const auto order_under = [](std::uint64_t seed) {
    const DeviceOptionsGuard shuffled({.progress = Progress::shuffled, .seed = seed});
    const Stream streams[3];
    std::string order;
    for (int i = 0; i < 30; ++i) {
      emulation::enqueue(streams[i % 3], [&order, i] { order += static_cast<char>('a' + i); });
    }
    check(cudaDeviceSynchronize());
    return order;
  };
  REQUIRE(order_under(1) == order_under(1));
  REQUIRE(order_under(1) != order_under(2));
}

TEST_CASE("threads share the device, each with its own stream") {
  std::vector<int> sums(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&sums, t] {
      cudaStream_t stream = nullptr;
      int* data = nullptr;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      cudaMalloc(reinterpret_cast<void**>(&data), 4);
      cudaMemsetAsync(data, 0, 4, stream);
      for (int i = 0; i < 50; ++i) {
        emulation::enqueue(stream, [=] { *data += i + t; });
        if (i % 10 == 0) cudaStreamSynchronize(stream);
      }
      cudaMemcpyAsync(&sums[t], data, 4, cudaMemcpyDefault, stream);
      cudaFree(data);
      cudaStreamDestroy(stream);
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(sums == std::vector{1225, 1275, 1325});
}

TEST_CASE("a stream may wait for a point that another thread queues later") {
  using namespace emulation;
  const Stream a, b;
  const auto point = std::make_shared<Point>();
  std::vector<int> order;
  {
    const auto lock = Devices::get().lock();
    Devices::get().enqueue(*a.handle, {.wait = point});
  }
  enqueue(a, [&] { order.push_back(2); });
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    enqueue(b, [&] { order.push_back(1); });
    const auto lock = Devices::get().lock();
    Devices::get().enqueue(*b.handle, {.pass = point});
  });
  check(cudaStreamSynchronize(a));
  other.join();
  REQUIRE(order == std::vector{1, 2});
}

TEST_CASE("streams that wait for one another fail the device instead of hanging") {
  using namespace emulation;
  const Stream a, b;
  const auto of_a = std::make_shared<Point>(), of_b = std::make_shared<Point>();
  {
    const auto lock = Devices::get().lock();
    Devices::get().enqueue(*a.handle, {.wait = of_b});
    Devices::get().enqueue(*a.handle, {.pass = of_a});
    Devices::get().enqueue(*b.handle, {.wait = of_a});
    Devices::get().enqueue(*b.handle, {.pass = of_b});
  }
  REQUIRE(cudaStreamSynchronize(a) == cudaErrorLaunchFailure);
  REQUIRE_THAT(cudaGetErrorString(cudaErrorLaunchFailure), Contains("wait for one another"));
  forget_failures();
}

TEST_CASE("leaks are counted") {
  REQUIRE(emulation::leaks().empty());
  const Stream stream;
  const Event event;
  const Ints device(3), pinned(2, /*on_host=*/true);
  REQUIRE(emulation::leaks() ==
          "1 blocks of device memory (12 bytes), 1 blocks of host memory (8 bytes), 1 streams, "
          "1 events");
}

// These end the program: each body runs in its own process.

TEST_CASE("the host may not touch device memory") {
  const test::Child child = test::run_child([] {
    const Ints device(1);
    *static_cast<volatile int*>(device.data) = 1;
  });
  REQUIRE(child.failed());
  REQUIRE_THAT(child.output, Contains("emulated device: the host touches memory of device 0"));
}

TEST_CASE("work may not touch another device's memory") {
  const test::Child child = test::run_child([] {
    const DeviceOptionsGuard two({.devices = 2});
    const Stream stream;
    cudaSetDevice(1);
    const Ints there(1);
    cudaSetDevice(0);
    set(there.data, 1, stream);
    cudaStreamSynchronize(stream);
  });
  REQUIRE(child.failed());
  REQUIRE_THAT(child.output, Contains("work on another device touches memory of device 1"));
}

TEST_CASE("a program that leaks prints the leaks and fails") {
  const test::Child child = test::run_child([] {
    void* data = nullptr;
    cudaMalloc(&data, 100);
    std::exit(0);
  });
  REQUIRE(child.failed());
  REQUIRE_THAT(child.output, Contains("without freeing 1 blocks of device memory (100 bytes)"));
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("a byte before or after a block, or in a freed one, is reported") {
  for (const int where : {-1, 10, 0}) {
    const test::Child child = test::run_child([&] {
      const Stream stream;
      Ints device(10);
      int* const data = device.data;
      if (where == 0) {
        cudaFree(std::exchange(device.data, nullptr));
      }
      set(data + where, 1, stream);
      cudaStreamSynchronize(stream);
    });
    CAPTURE(where);
    REQUIRE(child.failed());
    REQUIRE_THAT(child.output, Contains("use-after-poison"));
  }
}

TEST_CASE("a cached block is marked unused and used in the stream's order") {
  for (const bool other_stream : {false, true}) {
    const test::Child child = test::run_child([&] {
      const Stream a, b;
      const Ints device(128);
      emulation::mark_used(a, device.data, 400, 512);
      set(device.data + 99, 1, other_stream ? b : a);
      emulation::mark_unused(a, device.data, 512);
      check(cudaStreamSynchronize(a));
      check(cudaStreamSynchronize(b));
    });
    CAPTURE(other_stream, child.output);
    REQUIRE(child.failed() == other_stream);
  }
  const test::Child child = test::run_child([&] {
    const Stream a;
    const Ints device(128);
    emulation::mark_used(a, device.data, 400, 512);
    set(device.data + 100, 1, a);
    check(cudaStreamSynchronize(a));
  });
  REQUIRE_THAT(child.output, Contains("use-after-poison"));
}
#endif

TEST_CASE("an emulated device has the attributes of its architecture") {
  const auto attribute = [](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, 0));
    return value;
  };
  // "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability".
  for (const auto& [capability, kibibytes] : {std::pair(80, 163), {86, 99}, {89, 99}, {90, 227}}) {
    emulation::DeviceOptions options = emulation::device_options();
    options.capability = capability;
    const emulation::DeviceOptionsGuard guard(options);
    REQUIRE(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) == kibibytes * 1024);
    REQUIRE(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) == (kibibytes + 1) * 1024);
    REQUIRE(attribute(cudaDevAttrMaxSharedMemoryPerBlock) == 48 * 1024);
    REQUIRE(attribute(cudaDevAttrComputeCapabilityMajor) == capability / 10);
    REQUIRE(attribute(cudaDevAttrComputeCapabilityMinor) == capability % 10);
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0));
    REQUIRE(properties.major == capability / 10);
    REQUIRE(properties.minor == capability % 10);
  }
  REQUIRE_THROWS_WITH(emulation::set_device_options({.capability = 70}), Contains("sm_70"));
}

TEST_CASE("a kernel cannot be allowed more shared memory than a block can have") {
  constexpr auto kAttribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  const int kernel = 0;  // its address stands for a kernel's
  REQUIRE_FALSE(emulation::shared_memory_limits(&kernel).dynamic_bytes.has_value());
  check(cudaFuncSetAttribute(&kernel, kAttribute, 227 * 1024));
  REQUIRE(emulation::shared_memory_limits(&kernel).dynamic_bytes == 227 * 1024);
  REQUIRE(cudaFuncSetAttribute(&kernel, kAttribute, 227 * 1024 + 1) == cudaErrorInvalidValue);
  REQUIRE(cudaFuncSetAttribute(&kernel, kAttribute, -1) == cudaErrorInvalidValue);
  emulation::DeviceOptions options = emulation::device_options();
  { const emulation::DeviceOptionsGuard same(options); }
  REQUIRE(emulation::shared_memory_limits(&kernel).dynamic_bytes == 227 * 1024);
  options.capability = 89;
  const emulation::DeviceOptionsGuard other(options);
  REQUIRE_FALSE(emulation::shared_memory_limits(&kernel).dynamic_bytes.has_value());
}

TEST_CASE("a stream keeps its priority, clamped to the device's range") {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  REQUIRE(greatest < least);  // a smaller number goes first
  for (const auto& [asked, given] : {std::pair(least, least),
                                     {greatest, greatest},
                                     {greatest - 1, greatest},
                                     {least + 1, least}}) {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, asked));
    int priority = 99;
    check(cudaStreamGetPriority(stream, &priority));
    REQUIRE(priority == given);
    check(cudaStreamDestroy(stream));
  }
}

}  // namespace tessera
