// The names of Gemma 3's tensors in Hugging Face's files.
#pragma once

#include "models/tensor_names.h"

namespace tessera {

/// Parameters have their own names, the same without "model.", or, in files of a model that sees images, with
/// "language_model." before them. Such files also hold an image encoder, which is not read.
TensorNames gemma3_tensor_names();

}  // namespace tessera
