#include "models/qwen3_moe/weights.h"

#include <fmt/format.h>

#include "models/llama/weights.h"
#include "models/routers.h"

namespace tessera {
namespace {

constexpr std::string_view kGateUp = "gate_up_proj";
constexpr std::string_view kDown = "down_proj";

std::vector<StoredTensor> parts_of_parameter(const std::string& parameter, const Shape& shape) {
  std::vector<StoredTensor> parts;
  const bool down = parameter.ends_with(fmt::format("mlp.experts.{}", kDown));
  if (!down && !parameter.ends_with(fmt::format("mlp.experts.{}", kGateUp))) return parts;
  const std::string prefix =
      parameter.substr(0, parameter.size() - (down ? kDown : kGateUp).size());
  for (std::int64_t e = 0; e < shape[0]; ++e) {
    if (down) {
      parts.push_back({fmt::format("{}{}.down_proj.weight", prefix, e), {shape[1], shape[2]}});
      continue;
    }
    for (const char* half : {"gate_proj", "up_proj"}) {
      parts.push_back({fmt::format("{}{}.{}.weight", prefix, e, half), {shape[1] / 2, shape[2]}});
    }
  }
  return parts;
}

bool is_not_a_parameter(std::string_view tensor) {
  return llama_tensor_names().is_not_a_parameter(tensor) || is_router_bias(tensor);
}

}  // namespace

TensorNames qwen3_moe_tensor_names() {
  TensorNames names = llama_tensor_names();
  names.is_not_a_parameter = is_not_a_parameter;
  names.parts_of_parameter = parts_of_parameter;
  return names;
}

}  // namespace tessera
