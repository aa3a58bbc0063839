#include <map>

#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/status.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph_pool.h"
#include "runtime/poison.h"

#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/emulated_device.h"
#endif

namespace tessera::cuda {
namespace {

/// Null if there was too little memory. Raises Error if the call failed for another reason.
std::byte* data_or_null(void* const& data, cudaError_t status, const char* call) {
  if (status != cudaErrorMemoryAllocation) check_status(status, call);
  if (status == cudaSuccess) return static_cast<std::byte*>(data);
  cudaGetLastError();  // otherwise the next call reports this failure
  return nullptr;
}

class DeviceMemory final : public MemorySource {
 public:
  explicit DeviceMemory(int index) : index_(index) {}
  std::byte* acquire(std::size_t bytes) override {
    check_status(cudaSetDevice(index_), "cudaSetDevice");
    void* data = nullptr;
    return data_or_null(data, cudaMalloc(&data, bytes), "cudaMalloc");
  }
  // cudaFree waits until the GPU has finished all its work, so the block is no longer in use.
  void release(std::byte* data, std::size_t) override { cudaFree(data); }

  void mark_used(std::byte* data, std::size_t bytes, std::size_t block_bytes, int stream) override;
  void mark_unused(std::byte* data, std::size_t block_bytes, int stream) override;

 private:
  int index_;
  std::map<int, cudaStream_t> streams_;  // the users of blocks, by their numbers
};

/// A block of a graph's pool has the number of its stream in the pool.
[[maybe_unused]] int without_pool(int stream) {
  return stream % kStreamsOfPool;
}

#if defined(TESSERA_EMULATED)
void DeviceMemory::mark_used(std::byte* data, std::size_t bytes, std::size_t block_bytes,
                             int numbered) {
  const int stream = without_pool(numbered);
  if (context_or_null() != nullptr && current_stream().id() == stream) {
    streams_[stream] = native(current_stream());
  }
  if (const auto found = streams_.find(stream); found != streams_.end()) {
    emulation::mark_used(found->second, data, bytes, block_bytes);
  }
}
void DeviceMemory::mark_unused(std::byte* data, std::size_t block_bytes, int numbered) {
  if (const auto found = streams_.find(without_pool(numbered)); found != streams_.end()) {
    emulation::mark_unused(found->second, data, block_bytes);
  }
}
#else  // no checker watches a GPU's memory
void DeviceMemory::mark_used(std::byte*, std::size_t, std::size_t, int) {}
void DeviceMemory::mark_unused(std::byte*, std::size_t, int) {}
#endif

class PinnedMemory final : public HostMemorySource {
 public:
  std::byte* acquire(std::size_t bytes) override {
    void* data = nullptr;
    return data_or_null(data, cudaMallocHost(&data, bytes), "cudaMallocHost");
  }
  void release(std::byte* data, std::size_t bytes) override {
    unpoison(data, bytes);
    cudaFreeHost(data);
  }
};

}  // namespace

std::unique_ptr<MemorySource> device_memory(int index) {
  return std::make_unique<DeviceMemory>(index);
}

std::unique_ptr<MemorySource> pinned_memory() {
  return std::make_unique<PinnedMemory>();
}

void copy(void* to, const void* from, std::size_t bytes, bool with_host) {
  if (bytes == 0) return;
  if (with_host) hold_until_synchronized(current_stream());
  if (context().is_dry()) return;
  check_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(current_stream())),
               "cudaMemcpyAsync");
}

void zero(void* data, std::size_t bytes) {
  if (bytes == 0 || context().is_dry()) return;
  check_status(cudaMemsetAsync(data, 0, bytes, native(current_stream())), "cudaMemsetAsync");
}

}  // namespace tessera::cuda
