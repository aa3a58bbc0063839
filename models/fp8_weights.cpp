#include "models/fp8_weights.h"

#include "models/adapters.h"

namespace tessera {

std::vector<Parameter> fp8_weights(const LanguageModel& model) {
  std::vector<Parameter> weights = adaptable_weights(model);
  std::erase_if(weights, [](const Parameter& weight) { return weight.stacked(); });
  return weights;
}

}  // namespace tessera
