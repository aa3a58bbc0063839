// The weights that multiply in 8 bits in a run that computes in fp8 (autograd/fp8.h).
#pragma once

#include <vector>

#include "models/language_model.h"

namespace tessera {

/// Those of the blocks' linear layers, but for experts.
std::vector<Parameter> fp8_weights(const LanguageModel& model);

}  // namespace tessera
