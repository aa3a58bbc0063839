// Muon's elementwise passes over many flat ranges of parameters (Jordan et al. 2024).
//
// Muon needs whole matrices (kernels/newton_schulz/op.h) between two passes that need none:
//
//   muon_direction   g = gradient_scale * gradient
//                    m = m + (1 - momentum) (g - m)
//                    direction = m, or m + (1 - momentum) (g - m) with nesterov, rounded
//   muon_apply       p = p (1 - learning_rate * weight_decay) - learning_rate * ratio * update
//                    (the first factor is 1 if the range does not decay)
//
//   m and p f32; gradient f32, bf16 or f16; direction and update f32 or bf16; equal element counts.
//   All gradients of a call have one dtype, all directions, and all updates.
//
// The conventions are torch.optim.Muon's. Both passes are elementwise, with the same bits on every
// device: a range gives the same bits whole or in pieces. gradient_scale may be a tensor [1] f32. If
// it is not finite, m and p stay, and directions are zeros (see kernels/adamw/op.h).
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

/// The tensors of one range.
struct MuonDirection {
  Tensor m, gradient;
  /// May be undefined: the range's direction is not needed on this rank.
  Tensor direction = {};
};

struct MuonDirectionSettings {
  double momentum = 0.95;
  bool nesterov = true;
  double gradient_scale = 1.0;
};

struct MuonUpdate {
  Tensor p, update;
  /// Multiplies the learning rate of the update, not that of weight decay.
  double ratio = 1.0;
  /// Whether weight decay acts on p.
  bool decay = true;
};

struct MuonUpdateSettings {
  double learning_rate = 1e-3;
  double weight_decay = 0.1;
  /// The place of learning_rate in StepNumbers::learning_rates, for a graph.
  std::size_t optimizer = 0;
};

/// A defined `gradient_scale` replaces the setting of that name.
void muon_direction(std::span<const MuonDirection> ranges, const MuonDirectionSettings& settings,
                    const Tensor& gradient_scale = {});
/// A defined `gradient_scale` only says whether p changes.
void muon_apply(std::span<const MuonUpdate> ranges, const MuonUpdateSettings& settings,
                const Tensor& gradient_scale = {});

namespace cpu {
decltype(tessera::muon_direction) muon_direction;
decltype(tessera::muon_apply) muon_apply;
}  // namespace cpu
namespace cuda {
decltype(tessera::muon_direction) muon_direction;
decltype(tessera::muon_apply) muon_apply;
}  // namespace cuda

}  // namespace tessera
