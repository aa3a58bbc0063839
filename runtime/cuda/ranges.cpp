// The profiler's spans as ranges of NVIDIA's tools (Nsight Systems shows them above the kernels).
// NVTX is a header of the toolkit; calls cost nothing unless a tool listens.
#include "runtime/cuda/backend.h"

#if !defined(TESSERA_EMULATED) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace tessera::cuda {

void begin_range(const std::string& name) {
  nvtxRangePushA(name.c_str());
}
void end_range() {
  nvtxRangePop();
}

}  // namespace tessera::cuda

#else

namespace tessera::cuda {

void begin_range(const std::string&) {}
void end_range() {}

}  // namespace tessera::cuda

#endif
