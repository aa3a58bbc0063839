// How a kernel reports bad data: the host raises it as Error when it next synchronizes the stream.
//
//   kernel<<<...>>>(..., cuda::fault_slot(current_stream(), "rope: position {} is too large"));
//   ...
//   if (id < 0 || id >= rows) { gpu::report(fault, n); return; }
#pragma once

#include "kernels/cuda/language.h"
#include "runtime/cuda/fault.h"
#include "runtime/cuda/stream.h"

namespace tessera::gpu {

/// Leaves the fault unless a fault at a smaller position is there. The kernel goes on without the
/// bad element.
__device__ inline void report(cuda::FaultSlot fault, std::int64_t position) {
  atomicMin(fault.word, static_cast<cuda::FaultWord>(position) << 8 | fault.kind);
}

}  // namespace tessera::gpu
