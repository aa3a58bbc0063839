#include "models/gpt2/weights.h"

namespace tessera {
namespace {

constexpr std::string_view kPrefix = "transformer.";

std::vector<std::string> names_of_parameter(const std::string& parameter) {
  std::vector<std::string> names = {parameter};
  if (parameter.starts_with(kPrefix)) names.push_back(parameter.substr(kPrefix.size()));
  return names;
}

bool is_not_a_parameter(std::string_view tensor) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") ||
         tensor == "lm_head.weight";
}

}  // namespace

TensorNames gpt2_tensor_names() {
  return {.names_of_parameter = names_of_parameter,
          .is_not_a_parameter = is_not_a_parameter,
          .before_layer = "h."};
}

}  // namespace tessera
