// The seam between the emulated runtime and whoever gives it work (kernel launches, matrix
// products): not part of the toolkit's interface.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

namespace tessera::emulation {

/// Queues `work` on the emulated stream, as a kernel launch would be.
void enqueue(cudaStream_t stream, std::function<void()> work);

}  // namespace tessera::emulation
