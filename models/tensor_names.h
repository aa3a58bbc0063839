// How a model family names its tensors in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor.h"

namespace tessera {

/// A tensor of a file.
struct StoredTensor {
  std::string name;
  Shape shape;
};

struct TensorNames {
  /// The beginning of parameters' names that files may leave out: "transformer."
  std::string_view optional_prefix;
  /// The text before parameters' names in files of a larger model: "language_model."; empty: there are
  /// no such files.
  std::string_view outer_prefix = {};
  /// Whether files of this family may hold this tensor although it is not a parameter: a mask, or a
  /// tied head.
  bool (*is_not_a_parameter)(std::string_view tensor);
  /// The text before a block's number: "h." in "transformer.h.3.ln_1.weight".
  std::string_view before_layer;
  /// The tensors that files usually hold in a parameter's place. End to end, their elements are the
  /// parameter's. None for a parameter that is one tensor; null if all parameters are.
  std::vector<StoredTensor> (*parts_of_parameter)(const std::string& parameter,
                                                  const Shape& shape) = nullptr;
};

/// The names under which a file may hold a tensor, the usual one first.
std::vector<std::string> stored_names(const std::string& usual, const TensorNames& names);

/// The tensors that files usually hold for a parameter: its parts, or itself.
std::vector<StoredTensor> usual_tensors(const std::string& parameter, const Shape& shape,
                                        const TensorNames& names);

/// A whole parameter's elements as these tensors: views of `whole`.
std::vector<Tensor> cut(const Tensor& whole, const std::vector<StoredTensor>& tensors);

/// The number of the block that a tensor belongs to; none for the embedding and the head.
std::optional<std::int64_t> layer_of(std::string_view tensor, const TensorNames& names);

}  // namespace tessera
