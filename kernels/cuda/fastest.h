// The fastest of several ways to do the same work, by measurement.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace tessera::cuda {

/// `trial(i)` queues candidate i on `stream`. Returns the candidate with the best sustained rate
/// (kernels/matmul/fastest_way.h): each runs for about a second. `candidates` is at least 1. Waits for
/// the stream.
std::size_t fastest(cudaStream_t stream, std::size_t candidates,
                    const std::function<void(std::size_t)>& trial);

}  // namespace tessera::cuda
