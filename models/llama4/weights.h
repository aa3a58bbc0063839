// The names of Llama 4's tensors in Hugging Face's files.
#pragma once

#include "models/tensor_names.h"

namespace tessera {

/// Files of the text model have the parameters' own names, those of the whole model the same after
/// "language_model.". The vision model and its projector are left out. The experts' tensors have the
/// parameters' layout, [E, in, out].
TensorNames llama4_tensor_names();

}  // namespace tessera
