#include "models/tensor_names.h"

#include <charconv>

namespace tessera {

std::optional<std::int64_t> layer_of(std::string_view tensor, const TensorNames& names) {
  for (std::size_t at = tensor.find(names.before_layer); at != tensor.npos;
       at = tensor.find(names.before_layer, at + 1)) {
    if (at > 0 && tensor[at - 1] != '.') continue;  // inside a word
    const char* const begin = tensor.data() + at + names.before_layer.size();
    const char* const end = tensor.data() + tensor.size();
    std::int64_t layer = 0;
    const auto [stop, error] = std::from_chars(begin, end, layer);
    if (error == std::errc() && layer >= 0 && stop != end && *stop == '.') return layer;
  }
  return std::nullopt;
}

}  // namespace tessera
