// What the rest of the runtime asks of the CUDA backend. No CUDA types here: only files below
// runtime/cuda and device code see those. Defined in builds that have the backend (kHasCuda).
#pragma once

#include <memory>
#include <string>

#include "runtime/allocator.h"
#include "runtime/cuda/device.h"
#include "runtime/stream.h"

namespace tessera::cuda {

/// Raises Error, saying what the driver said, if there is no such GPU. Makes it the one that this
/// thread works on.
void select_device(int index);

/// The same for one that was selected before.
void return_to_device(int index) noexcept;

/// The GPU's memory (cudaMalloc).
std::unique_ptr<MemorySource> device_memory(int index);
/// Host memory that the GPU copies from and to without staging (cudaMallocHost).
std::unique_ptr<MemorySource> pinned_memory();

/// A queue of the GPU that the calling thread works on. Work given to it runs on the host at once,
/// with the stream current, and issues device work.
Stream make_stream(std::string name, int id);

/// Queues a copy between any two places on the current stream. `with_host`: one of them is the
/// host's, which must not be reused before the host knows that the copy is done.
void copy(void* to, const void* from, std::size_t bytes, bool with_host);
/// Queues setting bytes to zero on the current stream.
void zero(void* data, std::size_t bytes);

/// The calling thread enters (leaves) a stretch of work that NVIDIA's tools show by this name.
void begin_range(const std::string& name);
void end_range();

}  // namespace tessera::cuda
