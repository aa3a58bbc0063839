// How a model family names its tensors in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct TensorNames {
  /// The names under which a file may hold a parameter, the usual one first.
  std::vector<std::string> (*names_of_parameter)(const std::string& parameter);
  /// Whether files of this family may hold this tensor although it is not a parameter: a mask, or a
  /// tied head.
  bool (*is_not_a_parameter)(std::string_view tensor);
  /// The text before a block's number: "h." in "transformer.h.3.ln_1.weight".
  std::string_view before_layer;
};

/// The number of the block that a tensor belongs to; none for the embedding and the head.
std::optional<std::int64_t> layer_of(std::string_view tensor, const TensorNames& names);

}  // namespace tessera
