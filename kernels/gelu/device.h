// GELU in the form of tanh, of one number, for CUDA kernels: y = x s with s = sigmoid(2u) (tanh_form.h).
#pragma once

#include "kernels/cuda/sigmoid.h"

namespace tessera::gpu {

struct TanhGelu {
  static constexpr float kTwoRootTwoOverPi = 1.5957691216057307117597842397375f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;

  __device__ static float two_u(float x) { return kTwoRootTwoOverPi * (x + kCubic * x * x * x); }
  __device__ static float value(float x) { return x * sigmoid(two_u(x)); }
  __device__ static Slope both(float x) {
    const auto [s, complement] = sigmoid_pair(two_u(x));
    const float two_du = kTwoRootTwoOverPi * (1.0f + 3 * kCubic * x * x);
    return {x * s, s + x * s * complement * two_du};
  }
};

}  // namespace tessera::gpu
