// CUDA C++ for the host compiler: kernels compiled against this run on the CPU, thread by thread.
// docs/emulation.md says how, and what it finds.
//
// There is no __shared__: TESSERA_SHARED and gpu::SharedMemory (kernels/cuda/language.h) are it.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define __grid_constant__

#include "kernels/emulation/asynchronous_copy.h"
#include "kernels/emulation/atomics.h"
#include "kernels/emulation/builtins.h"
#include "kernels/emulation/coordinates.h"
#include "kernels/emulation/launch.h"
#include "kernels/emulation/shared_memory.h"
#include "kernels/emulation/tensor_core.h"
#include "kernels/emulation/threads.h"
