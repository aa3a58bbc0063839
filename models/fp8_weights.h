// The weights of a model whose products may be rounded to 8 bits (autograd/fp8.h).
#pragma once

#include <vector>

#include "models/language_model.h"

namespace tessera {

/// Those of the blocks' linear layers, but for experts.
std::vector<Parameter> fp8_weights(const LanguageModel& model);

}  // namespace tessera
