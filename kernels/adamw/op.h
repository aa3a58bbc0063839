// One AdamW update of many flat ranges of parameters at once.
//
// (Loshchilov, Hutter 2019: decoupled weight decay.)
//
//   g = gradient_scale * gradient
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - learning_rate * weight_decay * p          (if the range decays)
//         - learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//
//   p f32 or bf16; m and v both f32 or both bf16; gradient and copy f32, bf16 or f16, and copy of f32 also e4m3;
//   equal element counts. All p of a call have one dtype, and so have all moments and all gradients.
//
// One pass reads everything and writes p, m and v. The same pass writes `copy`, if there is one: the
// new p in another dtype, with the bits of cast(copy, p). A model that computes in 16 bits reads it. A copy in
// 8 bits is fp8_quantize(copy, {}, p, scale, largest).
// The update is elementwise, with the same bits on every device: a range gives the same bits whole
// or in pieces.
//
// p in bf16 has no f32 master. An update is mostly smaller than half the distance of two bf16
// numbers, and rounding to nearest would lose it. So p is rounded up or down at random, such that
// its mean is right (stochastic rounding; Gupta et al. 2015):
//
//   bf16(p) = upper half of (bits of p + 16 random bits)
//
// A value that bf16 holds exactly stays, and so do infinity and NaN. A finite value stays finite: one
// above the largest finite bf16 becomes that one. Moments in bf16 are rounded in the same way: near 1,
// beta2 changes v by less than half a step of bf16. The update of p uses them before they are
// rounded.
//
// The random bits are a function of the element's address. Element e of the parameter takes one word, the
// number e % 4 of the sequence's block e / 4 of seven rounds. So a block serves four elements. The word has
// three numbers of 16 bits:
//
//   p  its upper half      m  its lower half      v  the upper half of word * kOfV
//
// Each is uniform. m is independent of p and of v. p, m and v together are points of a lattice, as those of
// a linear congruential generator are: their planes are at least 1,638 to the unit of length (the spectral
// test; Knuth 1997, section 3.3.4). No lattice of 2^32 points has more than 1,824.
//
// Clipping knows its factor only on the device. gradient_scale is then a tensor [1] f32. If it is
// not finite, the call changes nothing but copies in 8 bits, which may have another scale than before. So the
// host may queue the update before it knows of an overflow.
#pragma once

#include <span>

#include "kernels/fp8/op.h"
#include "kernels/op.h"
#include "runtime/elements.h"
#include "runtime/random.h"

namespace tessera {

/// The tensors of one parameter, or of a rank's part of it.
struct AdamWTensors {
  Tensor p, m, v, gradient;
  /// May be undefined.
  Tensor copy = {};
  /// For a copy in 8 bits.
  Fp8Rounding to_8_bits = {};
  /// Whether weight decay acts on p.
  bool decay = true;
  /// For p or moments in bf16: a random sequence, another one for every parameter and step.
  RandomStream rounding = {};
  /// For these, too: the parameter's elements that the range has. With them the bits do not depend on
  /// how the parameter is cut into ranges and columns.
  Elements elements = {};
};

/// Rounds of Philox for the bits that round, and the factor that gives those of v.
inline constexpr int kRoundingRounds = 7;
inline constexpr std::uint32_t kOfV = 0x9E3779B1u;

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
  /// The place of learning_rate in StepNumbers::learning_rates, for a graph.
  std::size_t optimizer = 0;
};

/// A defined `gradient_scale` replaces the setting of that name.
void adamw(std::span<const AdamWTensors> parameters, const AdamWSettings& settings,
           const Tensor& gradient_scale = {});

namespace cpu {
decltype(tessera::adamw) adamw;
}
namespace cuda {
decltype(tessera::adamw) adamw;
}

}  // namespace tessera
