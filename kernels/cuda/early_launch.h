// Launches that begin before the launch ahead of them has ended (sm_90 and later).
//
// Between the last instruction of a kernel and the first of the next a GPU starts the grid, and the kernel
// prepares: it carves its shared memory and initializes barriers. An early launch does so during the end of
// the kernel ahead:
//
//   kernel ahead   ----------------------------|
//   early launch             start, prepare, wait |----------------
//
// Its kernel may touch no global memory before the wait. CUDA's name is programmatic dependent launch.
// Sources: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"; PTX ISA 9.0,
// "griddepcontrol".
#pragma once

#include <utility>

#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/launch.h"
#include "kernels/options.h"

namespace tessera::gpu {

/// launch(), early where the rank's options and the device allow it. All threads of the kernel call
/// wait_for_launch_ahead().
template <typename Kernel, typename... Rest>
void launch_early(Kernel* kernel, Grid grid, Rest&&... rest) {
  grid.early = kernel_options().early_launch && has_early_launches();
  launch(kernel, grid, std::forward<Rest>(rest)...);
}

/// Waits until the launch ahead in the stream has ended and its writes are visible. Lets the launch behind begin,
/// if that one is early. Returns at once in a launch that is not early.
#if defined(__CUDACC__)
__device__ inline void wait_for_launch_ahead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#else
inline void wait_for_launch_ahead(const emulation::Site& site = emulation::Site::current()) {
  emulation::wait_for_launch_ahead(site);
}
#endif

}  // namespace tessera::gpu
