// GatedMlp: the SwiGLU or GeGLU feed-forward layer.
#pragma once

#include <cstdint>
#include <string>

#include "models/layers.h"

namespace tessera {

/// down_proj(silu(gate_proj(x)) * up_proj(x)), or with gelu in silu's place (Shazeer 2020, "GLU Variants
/// Improve Transformer").
struct GatedMlp final : Module {
  GatedMlp(const std::string& name, std::int64_t width, std::int64_t inner, bool with_bias,
           Initializer initializer, Gate gate = Gate::silu);

  /// [..., width] to [..., width], through `inner` channels; plus `residual` if it is defined.
  Variable operator()(const Variable& x, const Variable& residual = {}) const {
    return swiglu_mlp(x, gate_up_proj.weights, gate_up_proj.biases, down_proj.weight,
                      down_proj.bias, residual, gate);
  }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

  JoinedLinear gate_up_proj;
  Linear down_proj;
  Gate gate;
};

}  // namespace tessera
