#include "models/gemma3/weights.h"

namespace tessera {
namespace {

bool is_not_a_parameter(std::string_view tensor) {
  return tensor.starts_with("vision_tower.") || tensor.starts_with("multi_modal_projector.") ||
         tensor == "lm_head.weight" || tensor == "language_model.lm_head.weight";
}

}  // namespace

TensorNames gemma3_tensor_names() {
  return {.optional_prefix = "model.",
          .outer_prefix = "language_model.",
          .is_not_a_parameter = is_not_a_parameter,
          .before_layer = "layers."};
}

}  // namespace tessera
