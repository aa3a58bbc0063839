#include "models/gated_mlp.h"

namespace tessera {

GatedMlp::GatedMlp(const std::string& name, std::int64_t width, std::int64_t inner, bool with_bias,
                   Initializer initializer, Gate gate)
    : gate_up_proj({{name + ".gate_proj", inner, inner}, {name + ".up_proj", inner, inner}}, width,
                   with_bias, initializer),
      down_proj(name + ".down_proj", inner, width, with_bias, WeightLayout::out_in, initializer,
                by_inputs(inner)),
      gate(gate) {}

void GatedMlp::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  gate_up_proj.visit_parameters(visit);
  down_proj.visit_parameters(visit);
}

}  // namespace tessera
