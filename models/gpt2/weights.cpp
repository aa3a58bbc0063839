#include "models/gpt2/weights.h"

namespace tessera {
namespace {

bool is_not_a_parameter(std::string_view tensor) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") ||
         tensor == "lm_head.weight";
}

}  // namespace

TensorNames gpt2_tensor_names() {
  return {.optional_prefix = "transformer.",
          .is_not_a_parameter = is_not_a_parameter,
          .before_layer = "h."};
}

}  // namespace tessera
