// The names of the Llama family's tensors in Hugging Face's files.
#pragma once

#include "models/tensor_names.h"

namespace tessera {

/// Parameters have their own names, or, in files of the model without its head, the same without
/// "model.". Files may also hold RoPE's frequencies (Llama 2) and a tied head.
TensorNames llama_tensor_names();

}  // namespace tessera
