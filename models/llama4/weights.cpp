#include "models/llama4/weights.h"

#include "models/routers.h"

namespace tessera {
namespace {

bool is_not_a_parameter(std::string_view tensor) {
  return tensor.starts_with("vision_model.") || tensor.starts_with("multi_modal_projector.") ||
         tensor.ends_with(".rotary_emb.inv_freq") || tensor == "lm_head.weight" ||
         tensor == "language_model.lm_head.weight" || is_router_bias(tensor);
}

}  // namespace

TensorNames llama4_tensor_names() {
  return {.optional_prefix = "model.",
          .outer_prefix = "language_model.",
          .is_not_a_parameter = is_not_a_parameter,
          .before_layer = "layers."};
}

}  // namespace tessera
