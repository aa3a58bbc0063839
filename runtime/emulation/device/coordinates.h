// The running thread's coordinates. Plain globals, so that a debugger's conditions such as
// `break kernel.cu:42 if threadIdx.x == 5` work.
#pragma once

#include <vector_types.h>

inline uint3 threadIdx{};
inline uint3 blockIdx{};
inline dim3 blockDim{};
inline dim3 gridDim{};
inline constexpr int warpSize = 32;
