#include "models/tensor_names.h"

#include <charconv>

namespace tessera {

std::vector<std::string> stored_names(const std::string& usual, const TensorNames& names) {
  std::vector<std::string> result = {usual};
  if (!names.outer_prefix.empty()) result.push_back(std::string(names.outer_prefix) + usual);
  if (usual.starts_with(names.optional_prefix)) {
    result.push_back(usual.substr(names.optional_prefix.size()));
  }
  return result;
}

std::vector<StoredTensor> usual_tensors(const std::string& parameter, const Shape& shape,
                                        const TensorNames& names) {
  std::vector<StoredTensor> tensors;
  if (names.parts_of_parameter != nullptr) tensors = names.parts_of_parameter(parameter, shape);
  if (tensors.empty()) tensors.push_back({parameter, shape});
  return tensors;
}

std::vector<Tensor> cut(const Tensor& whole, const std::vector<StoredTensor>& tensors) {
  const Tensor flat = whole.reshape({whole.numel()});
  std::vector<Tensor> pieces;
  std::int64_t begin = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::int64_t end = begin + tensor.shape.numel();
    pieces.push_back(flat.slice(begin, end).reshape(tensor.shape));
    begin = end;
  }
  return pieces;
}

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
