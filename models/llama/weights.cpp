#include "models/llama/weights.h"

namespace tessera {
namespace {

bool is_not_a_parameter(std::string_view tensor) {
  return tensor.ends_with(".rotary_emb.inv_freq") || tensor == "lm_head.weight";
}

}  // namespace

TensorNames llama_tensor_names() {
  return {.optional_prefix = "model.",
          .is_not_a_parameter = is_not_a_parameter,
          .before_layer = "layers."};
}

}  // namespace tessera
