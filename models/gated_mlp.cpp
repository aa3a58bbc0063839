#include "models/gated_mlp.h"

namespace tessera {

GatedMlp::GatedMlp(const std::string& name, std::int64_t width, std::int64_t inner, bool with_bias,
                   Initializer initializer)
    : gate_proj(name + ".gate_proj", width, inner, with_bias, WeightLayout::out_in, initializer),
      up_proj(name + ".up_proj", width, inner, with_bias, WeightLayout::out_in, initializer),
      down_proj(name + ".down_proj", inner, width, with_bias, WeightLayout::out_in, initializer) {}

void GatedMlp::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  for (const Linear* linear : {&gate_proj, &up_proj, &down_proj}) linear->visit_parameters(visit);
}

}  // namespace tessera
