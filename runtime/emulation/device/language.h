// CUDA C++ for the host compiler: kernels run on the CPU, thread by thread.
//
// docs/emulation.md explains how, and which errors it finds. TESSERA_SHARED and gpu::SharedMemory
// (kernels/cuda/language.h) replace __shared__.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define __grid_constant__

#include "runtime/emulation/device/arithmetic.h"
#include "runtime/emulation/device/asynchronous_copy.h"
#include "runtime/emulation/device/atomics.h"
#include "runtime/emulation/device/builtins.h"
#include "runtime/emulation/device/coordinates.h"
#include "runtime/emulation/device/launch.h"
#include "runtime/emulation/device/shared_memory.h"
#include "runtime/emulation/device/tensor_core.h"
#include "runtime/emulation/device/threads.h"
