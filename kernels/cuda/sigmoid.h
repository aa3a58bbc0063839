// The logistic function, for the activations.
#pragma once

#include "kernels/cuda/numeric.h"

namespace tessera::gpu {

/// 1 / (1 + e^-x) within 4 units in the last place of float, for every finite x (0 below -87.3,
/// where it is under 1.2e-38).
///
/// The hardware's own tanh (tanh.approx, relative error 2^-11) would be one instruction instead of
/// about twelve, but f32 would keep a third of its digits, and f16 not all of its. __expf(x) rounds
/// x log2(e) to float first, a relative error of |x| 2^-24 in the result: expf splits ln 2 and does
/// not. The reciprocal may be the fast one: its argument is at least 1. Memory sets the pace either
/// way: a 16-bit activation leaves an H200 about 25 instructions per element.
__device__ inline float sigmoid(float x) {
  return fast_reciprocal(1.0f + expf(-x));
}

}  // namespace tessera::gpu
