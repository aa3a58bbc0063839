// Tensors that are neighbours in memory, as one.
#pragma once

#include <vector>

#include "runtime/tensor.h"

namespace tessera {

/// The memory of the tensors, of this shape, if each begins where the one before it ends. Else undefined.
Tensor joined_memory(const std::vector<Tensor>& tensors, const Shape& shape);

}  // namespace tessera
