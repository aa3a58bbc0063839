// How a kernel reports bad data: the host raises it as Error when it next synchronizes the stream.
//
//   kernel<<<...>>>(..., cuda::fault_word(current_stream()));
//   ...
//   if (id < 0 || id >= rows) { gpu::report(fault, Fault::embedding_id, n); return; }
#pragma once

#include "kernels/cuda/language.h"
#include "runtime/cuda/fault.h"
#include "runtime/cuda/stream.h"

namespace tessera::gpu {

/// Leaves the fault unless one of a smaller position is there. The kernel goes on with something
/// harmless: it must not use what is bad.
__device__ inline void report(cuda::FaultWord* word, cuda::Fault fault, std::int64_t position) {
  atomicMin(word,
            static_cast<cuda::FaultWord>(position) << 8 | static_cast<cuda::FaultWord>(fault));
}

}  // namespace tessera::gpu
