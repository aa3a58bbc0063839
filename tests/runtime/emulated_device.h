// The emulated CUDA runtime's handles as objects, for the tests of that runtime.
#pragma once

#include <catch2/catch.hpp>

#include "runtime/emulation/toolkit/emulated_device.h"

namespace tessera::test {

inline void check(cudaError_t status) {
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

inline void copy(int* to, const int* from, std::size_t count, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, 4 * count, cudaMemcpyDefault, stream));
}

inline int value_of(const int* device, cudaStream_t stream) {
  int value = 0;
  copy(&value, device, 1, stream);
  return value;
}

inline void set(int* device, int value, cudaStream_t stream) {
  emulation::enqueue(stream, [=] { *device = value; });
}

}  // namespace tessera::test
