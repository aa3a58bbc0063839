// The emulated CUDA runtime's devices: their number, their limits, and how they fail.
#include <catch2/catch.hpp>
#include <stdexcept>
#include <utility>

#include "tests/runtime/emulated_device.h"

namespace tessera::test {

using Catch::Contains;
using emulation::DeviceOptionsGuard;

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

}  // namespace tessera::test
