#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/stream.h"

namespace tessera::cuda {
namespace {

class DeviceMemory final : public MemorySource {
 public:
  explicit DeviceMemory(int index) : index_(index) {}
  std::byte* acquire(std::size_t bytes) override {
    check(cudaSetDevice(index_), "cudaSetDevice");
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) == cudaSuccess) return static_cast<std::byte*>(data);
    cudaGetLastError();  // or the next call would report this one's failure
    return nullptr;
  }
  // Waits for the GPU to finish what it has been given: nobody uses the block any more.
  void release(std::byte* data, std::size_t) override { cudaFree(data); }

 private:
  int index_;
};

class PinnedMemory final : public MemorySource {
 public:
  std::byte* acquire(std::size_t bytes) override {
    void* data = nullptr;
    if (cudaMallocHost(&data, bytes) == cudaSuccess) return static_cast<std::byte*>(data);
    cudaGetLastError();
    return nullptr;
  }
  void release(std::byte* data, std::size_t) override { cudaFreeHost(data); }
};

}  // namespace

std::unique_ptr<MemorySource> device_memory(int index) {
  return std::make_unique<DeviceMemory>(index);
}

std::unique_ptr<MemorySource> pinned_memory() {
  return std::make_unique<PinnedMemory>();
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(current_stream())),
        "cudaMemcpyAsync");
}

void zero(void* data, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(data, 0, bytes, native(current_stream())), "cudaMemsetAsync");
}

}  // namespace tessera::cuda
