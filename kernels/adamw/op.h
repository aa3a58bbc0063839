// One AdamW update (Loshchilov, Hutter 2019: decoupled weight decay) of many flat ranges of
// parameters at once.
//
//   g = gradient_scale * gradient
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - learning_rate * weight_decay * p          (where the range decays)
//         - learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//
//   p f32 or bf16, m and v f32, gradient f32, bf16 or f16, equal element counts; all p of a call
//   have one dtype, and all gradients. Everything is read, and p, m, v written, in one pass.
//   Elementwise, with the same bits on every device: a range gives the same bits whole or in
//   pieces.
//
// In bf16 p is all there is, without an f32 master. An update is mostly smaller than half the
// distance of two bf16 numbers, and rounded to nearest it would be lost. So p is rounded to one of
// its two neighbours by chance, such that its mean is right (stochastic rounding; Gupta et al.
// 2015):
//
//   bf16(p) = upper half of (bits of p + 16 random bits)
//
// A value that bf16 holds exactly stays, and so do infinity and NaN. Which bits are drawn is a
// function of the element's address: element i takes those of rounding.bits(first + i).
//
// A gradient_scale that only the device knows, such as that of clipping, is given as a tensor [1]
// f32. Where that is not finite the call changes nothing: an overflow need not be noticed by the
// host before it may queue the update.
#pragma once

#include <span>

#include "kernels/op.h"
#include "runtime/random.h"

namespace tessera {

/// What an update needs of one parameter, or of a rank's part of it.
struct AdamWTensors {
  Tensor p, m, v, gradient;
  /// Whether weight decay acts on it.
  bool decay = true;
  /// For p in bf16: another sequence for every parameter and step, and the range's first element in
  /// the parameter, so that the result does not depend on how it is cut.
  RandomStream rounding = {};
  std::int64_t first = 0;
};

struct AdamWSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  /// Multiplies the gradient first: clipping and unscaling.
  double gradient_scale = 1.0;
  /// t, counted from 1.
  std::int64_t step = 1;
};

/// `gradient_scale`, if it is a tensor, counts instead of the setting.
void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale = {});

namespace cpu {
decltype(tessera::adamw) adamw;
}
namespace cuda {
decltype(tessera::adamw) adamw;
}

}  // namespace tessera
