// The language of device code: CUDA under nvcc, its emulation under the host compiler.
//
// Every .cu file includes this header first. Kernels use the common part:
//
//   - CUDA C++: threadIdx, __syncthreads, shuffles and votes, atomics, float4, ...;
//   - TESSERA_SHARED(type, name, [extents]) declares static shared memory;
//   - gpu::SharedMemory carves the dynamic shared memory of a launch into arrays;
//   - gpu::launch starts a kernel on a gpu::Grid, in clusters if the grid asks for them; early_launch.h has
//     launches that begin before the one ahead has ended;
//   - kernels/cuda/tensor_core.h has cp.async, ldmatrix and mma.sync.
//
// Element types are Tessera's own bfloat16 and float16 (runtime/half.h), converted by
// kernels/cuda/numeric.h.
#pragma once

#include <concepts>
#include <source_location>

#include "runtime/context.h"

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/cuda/dynamic_shared_memory.h"
#include "runtime/cuda/status.h"

#define TESSERA_SHARED(type, name, extents) __shared__ type name extents

#else

#include "runtime/emulation/toolkit/emulated_device.h"

#include "kernels/cuda/dynamic_shared_memory.h"
#include "runtime/emulation/device/language.h"

// One tag per declaration; the reference is to memory that belongs to the block now running.
#define TESSERA_SHARED(type, name, extents) \
  static const char name##_tag = 0;         \
  auto& name = tessera::emulation::shared_variable<type extents>(&name##_tag)

#endif

namespace tessera::gpu {

/// A grid's extents, its clusters (kernels/cuda/cluster.h), whether it begins early (kernels/cuda/early_launch.h),
/// and the place of the launch: kernels of several files have the same name.
struct Grid {
  dim3 extents;
  unsigned cluster;  // blocks of a cluster, neighbours along x
  bool early = false;
  std::source_location site;

  template <std::convertible_to<dim3> Extents>
  Grid(const Extents& extents, unsigned cluster = 1,
       const std::source_location& site = std::source_location::current())
      : extents(extents), cluster(cluster), site(site) {}
};

#if defined(__CUDACC__)

/// Starts kernel(arguments...) on a grid of blocks, each with `shared_bytes` of dynamic shared
/// memory. Raises Error if the launch is refused. A dry run (runtime/context.h) starts nothing.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  if (context().is_dry()) return;
  if (shared_bytes > 0) allow_shared_memory(reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = grid.extents;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (grid.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {grid.cluster, 1, 1};
  }
  if (grid.early) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  cuda::check_status(
      cudaLaunchKernelEx(&config, kernel,
                         static_cast<Parameters>(std::forward<Arguments>(arguments))...),
      "cudaLaunchKernelEx");
}

/// Hands out the block's dynamic shared memory piece by piece; every thread makes the same calls.
class SharedMemory {
 public:
  template <typename T>
  __device__ T* take(std::size_t count, std::size_t alignment = 16) {
    extern __shared__ __align__(128) unsigned char tessera_dynamic_shared_memory[];
    offset_ = (offset_ + alignment - 1) / alignment * alignment;
    T* piece = reinterpret_cast<T*>(tessera_dynamic_shared_memory + offset_);
    offset_ += count * sizeof(T);
    return piece;
  }

 private:
  std::size_t offset_ = 0;
};

#else

using SharedMemory = emulation::SharedMemoryCarver;

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  if (context().is_dry()) return;
  const auto* const address = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > 0) allow_shared_memory(address, shared_bytes);
  const emulation::Launch launch{.grid = grid.extents,
                                 .block = block,
                                 .shared_bytes = shared_bytes,
                                 .cluster = grid.cluster,
                                 .limits = emulation::shared_memory_limits(address),
                                 .file = grid.site.file_name()};
  emulation::check(launch);
  const std::tuple<Parameters...> values{
      static_cast<Parameters>(std::forward<Arguments>(arguments))...};
  emulation::check_parameters(values);
  emulation::enqueue(
      stream, [=] { emulation::run(launch, kernel, values); }, emulation::words_of(values),
      grid.early);
}

#endif

}  // namespace tessera::gpu
