#include "models/llama4/weights.h"

#include "models/routers.h"

namespace tessera {
namespace {

constexpr std::string_view kPrefix = "model.";

std::vector<std::string> names_of_parameter(const std::string& parameter) {
  std::vector<std::string> names = {parameter, "language_model." + parameter};
  if (parameter.starts_with(kPrefix)) names.push_back(parameter.substr(kPrefix.size()));
  return names;
}

bool is_not_a_parameter(std::string_view tensor) {
  return tensor.starts_with("vision_model.") || tensor.starts_with("multi_modal_projector.") ||
         tensor.ends_with(".rotary_emb.inv_freq") || tensor == "lm_head.weight" ||
         tensor == "language_model.lm_head.weight" || is_router_bias(tensor);
}

}  // namespace

TensorNames llama4_tensor_names() {
  return {.names_of_parameter = names_of_parameter,
          .is_not_a_parameter = is_not_a_parameter,
          .before_layer = "layers."};
}

}  // namespace tessera
