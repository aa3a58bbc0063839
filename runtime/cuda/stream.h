// CUDA streams behind Stream, for code that launches kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/cuda/fault.h"
#include "runtime/stream.h"

namespace tessera::cuda {

/// The CUDA stream behind `stream`. Raises Error if it is a stream of the CPU.
cudaStream_t native(const Stream& stream);

/// Called inside work given to Stream::enqueue. The tensors that the work captures are held until the
/// host has synchronized with the stream; a wait by another stream is not enough.
void hold_until_synchronized(const Stream& stream);

/// Where kernels on `stream` report one kind of bad data. The stream's next synchronization raises
/// Error with `message`, in which "{}" stands for the position of the bad element:
/// "embedding: the id at position {} is not a row of the table".
///
/// `message` is a string literal. A stream has at most 256 different ones. Raises Error beyond.
FaultSlot fault_slot(const Stream& stream, const char* message);

/// Counters in device memory, by which the blocks of a kernel on `stream` find out which of them is
/// the last, or draw their work. They are zero before each kernel, and a kernel leaves them zero.
inline constexpr int kTickets = 256;
unsigned* tickets(const Stream& stream);

}  // namespace tessera::cuda
