// The logistic function, which GELU and SwiGLU use.
#pragma once

#include "kernels/cuda/numeric.h"

namespace tessera::gpu {

/// 1 / (1 + e^-x) within 4 units in the last place of float, for every finite x (0 below -87.3,
/// where it is under 1.2e-38).
///
/// The hardware's tanh (tanh.approx, relative error 2^-11) would be one instruction instead of
/// about twelve, but less exact than f16 and much less than f32. __expf(x) rounds x log2(e) to
/// float first, a relative error of |x| 2^-24 in the result; expf splits ln 2 and avoids it. The
/// reciprocal may be the fast one: its argument is at least 1. The time for memory hides these
/// instructions: a 16-bit activation leaves an H200 time for about 25 instructions per element.
__device__ inline float sigmoid(float x) {
  return fast_reciprocal(1.0f + expf(-x));
}

/// s = sigmoid(x) and 1 - s, for derivatives.
struct SigmoidPair {
  float s, complement;
};

/// The complement is e^-x s, which has a small relative error. 1 - s would keep the reciprocal's
/// error of one unit in the last place, and derivatives multiply that error by x or x^3. Where e^-x
/// overflows, s and the complement are both 0. Derivatives are 0 there, as they should be.
__device__ inline SigmoidPair sigmoid_pair(float x) {
  constexpr float kLargest = 0x1.fffffep127f;
  const float power = expf(-x), s = fast_reciprocal(1.0f + power);
  return {s, fminf(power, kLargest) * s};
}

/// The value of an activation at one number, and its derivative.
struct Slope {
  float value, derivative;
};

struct Silu {
  __device__ static float value(float x) { return x * sigmoid(x); }
  __device__ static Slope both(float x) {
    const auto [s, complement] = sigmoid_pair(x);
    return {x * s, s * (1.0f + x * complement)};
  }
};

/// silu(gate) * up. Every kernel of SwiGLU takes it and its gradient from here, so that all have the same
/// bits.
template <typename Activation = Silu>
__device__ inline float swiglu(float gate, float up) {
  return Activation::value(gate) * up;
}
/// gate and up become their gradients, from the gradient d of swiglu(gate, up).
template <typename Activation = Silu>
__device__ inline void differentiate_swiglu(float& gate, float& up, float d) {
  const auto [value, derivative] = Activation::both(gate);
  gate = d * up * derivative;
  up = d * value;
}
/// The same for a part of a row that was weighed: y = weight * h, where h = swiglu(gate, up) was stored as T, and d
/// is the gradient of y. d becomes y. Adds the part of the weight's gradient, d h.
template <typename T, int kWidth>
__device__ void differentiate_weighed_swiglu(float (&gate)[kWidth], float (&up)[kWidth],
                                             float (&d)[kWidth], float weight, float& dweight) {
  constexpr int kTogether = kWidth % 2 == 0 ? 2 : 1;  // in one conversion
#pragma unroll
  for (int i = 0; i < kWidth; i += kTogether) {
    float h[kTogether], dh[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      h[j] = swiglu(gate[i + j], up[i + j]);
      dh[j] = d[i + j] * weight;
    }
    round_all<T>(h);
    round_all<T>(dh);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      dweight += d[i + j] * h[j];
      differentiate_swiglu(gate[i + j], up[i + j], dh[j]);
      d[i + j] = h[j] * weight;
    }
  }
}

}  // namespace tessera::gpu
