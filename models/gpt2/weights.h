// The names of GPT-2's tensors in Hugging Face's files.
#pragma once

#include "models/tensor_names.h"

namespace tessera {

/// Parameters have their own names, or, in the hub's first files, the same without "transformer.".
/// Files may also hold causal masks and the tied head.
TensorNames gpt2_tensor_names();

}  // namespace tessera
