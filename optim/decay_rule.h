// The rule that says which parameters weight decay acts on.
#pragma once

#include <string_view>

#include "runtime/shape.h"

namespace tessera {

/// Weight decay acts on matrices and tables, not on norms and biases: a parameter decays if it has
/// at least two dimensions and its name does not end in "bias". (Biases of stacked experts have two
/// dimensions, so the shape alone does not tell.) Embeddings decay, as in GPT-2's and GPT-3's
/// training. `shape` is that of the whole parameter, not of a rank's flat shard.
bool decays(std::string_view parameter_name, const Shape& shape);

}  // namespace tessera
