// What device code needs of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/cuda/fault.h"
#include "runtime/stream.h"

namespace tessera::cuda {

/// The CUDA stream behind `stream`. Raises Error if it is one of the CPU's.
cudaStream_t native(const Stream& stream);

/// Within work given to Stream::enqueue: what the work holds is kept until the host has
/// synchronized with the stream, not only until another stream waits.
void hold_until_synchronized(const Stream& stream);

/// Where kernels on `stream` report bad data (an id outside its table), for the host to raise as
/// Error when it next synchronizes the stream; see kernels/cuda/fault.h.
FaultWord* fault_word(const Stream& stream);

}  // namespace tessera::cuda
