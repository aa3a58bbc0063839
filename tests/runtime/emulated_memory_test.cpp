// The emulated CUDA runtime's memory: copies, allocation, and pointers that are refused.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/runtime/emulated_device.h"
#include "tests/support/child.h"

namespace tessera::test {

using Catch::Contains;
using emulation::DeviceOptionsGuard;

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
  const Child child = run_child([] {
    const Ints device(1);
    *static_cast<volatile int*>(device.data) = 1;
  });
  REQUIRE(child.failed());
  REQUIRE_THAT(child.output, Contains("emulated device: the host touches memory of device 0"));
}

TEST_CASE("work may not touch another device's memory") {
  const Child child = run_child([] {
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
  const Child child = run_child([] {
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
    const Child child = run_child([&] {
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
    const Child child = run_child([&] {
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
  const Child child = run_child([&] {
    const Stream a;
    const Ints device(128);
    emulation::mark_used(a, device.data, 400, 512);
    set(device.data + 100, 1, a);
    check(cudaStreamSynchronize(a));
  });
  REQUIRE_THAT(child.output, Contains("use-after-poison"));
}
#endif

}  // namespace tessera::test
