// The CUDA backend's interface to the rest of the runtime.
//
// It has no CUDA types: only files below runtime/cuda and device code see those. The functions are
// defined in builds that have the backend (kHasCuda).
#pragma once

#include <memory>
#include <string>

#include "runtime/allocator.h"
#include "runtime/cuda/device.h"
#include "runtime/stream.h"

namespace tessera::cuda {

/// Makes a GPU current on this thread. Raises Error with the driver's text if there is no such GPU.
void select_device(int index);

/// The same for a GPU that was selected before.
void return_to_device(int index) noexcept;

/// A GPU's memory (cudaMalloc).
std::unique_ptr<MemorySource> device_memory(int index);
/// Host memory that the GPU copies from and to without staging (cudaMallocHost).
std::unique_ptr<MemorySource> pinned_memory();

/// A stream of the calling thread's GPU. Queued work runs on the host at once, with the stream
/// current, and issues device work.
Stream make_stream(std::string name, int id);
/// `stream`, with a thread that queues its work inside `context`: the calling host goes on, also if
/// the work waits on the host. Only this handle may be used then. A GPU stream that waits for one of its events
/// makes the host wait until the thread is there, not until the device is.
Stream queued_by_thread(const Stream& stream, RankContext& context);

/// Queues a copy on the current stream, between memory of any two devices. `with_host`: one side is
/// host memory, which is not reused until the host has waited for the copy.
void copy(void* to, const void* from, std::size_t bytes, bool with_host);
/// Queues setting bytes to zero on the current stream.
void zero(void* data, std::size_t bytes);

/// Begins (ends) a range that NVIDIA's tools show by this name.
void begin_range(const std::string& name);
void end_range();

}  // namespace tessera::cuda
