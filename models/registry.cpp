#include "models/registry.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/config_reader.h"
#include "models/gemma3/model.h"
#include "models/gemma3/weights.h"
#include "models/gpt2/model.h"
#include "models/gpt2/weights.h"
#include "models/llama/model.h"
#include "models/llama/weights.h"
#include "models/llama4/model.h"
#include "models/llama4/weights.h"
#include "models/qwen3_moe/model.h"
#include "models/qwen3_moe/weights.h"
#include "runtime/check.h"

namespace tessera {

namespace {

template <typename Model, auto config_from, typename Config>
ModelFamily family(std::vector<std::string_view> model_types, const Presets<Config>& presets,
                   const TensorNames& tensor_names) {
  ModelFamily result = {
      .model_types = std::move(model_types),
      .config_from = [](const nlohmann::json& config) -> Hyperparameters {
        return config_from(config);
      },
      .make = [](const Hyperparameters& hyperparameters) -> std::unique_ptr<LanguageModel> {
        return std::make_unique<Model>(std::get<Config>(hyperparameters));
      },
      .tensor_names = tensor_names};
  for (const Preset<Config>& preset : presets) {
    result.presets.push_back({preset.name, preset.config});
  }
  return result;
}

}  // namespace

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> families = {
      family<Gpt2, gpt2_config_from>({"gpt2"}, gpt2_presets(), gpt2_tensor_names()),
      family<Llama, llama_config_from>(
          {enum_names<LlamaKind>().begin(), enum_names<LlamaKind>().end()}, llama_presets(),
          llama_tensor_names()),
      family<Qwen3Moe, qwen3_moe_config_from>({"qwen3_moe"}, qwen3_moe_presets(),
                                              qwen3_moe_tensor_names()),
      family<Llama4, llama4_config_from>({"llama4_text", "llama4"}, llama4_presets(),
                                         llama4_tensor_names()),
      family<Gemma3, gemma3_config_from>({"gemma3_text", "gemma3"}, gemma3_presets(),
                                         gemma3_tensor_names()),
  };
  return families;
}

std::vector<std::string_view> model_presets() {
  std::vector<std::string_view> names;
  for (const ModelFamily& family : model_families()) {
    for (const auto& preset : family.presets) names.push_back(preset.name);
  }
  return names;
}

Hyperparameters model_preset(std::string_view name) {
  for (const ModelFamily& family : model_families()) {
    for (const auto& preset : family.presets) {
      if (preset.name == name) return preset.config;
    }
  }
  fail("unknown preset '{}': choose one of {}", name, fmt::join(model_presets(), ", "));
}

const ModelFamily& family_of(const nlohmann::json& config) {
  const std::string model_type = ConfigReader(config).text("model_type", "");
  check(model_type != "gemma2",
        "config.json: model_type is gemma2, which caps its logits by tanh; that is not "
        "supported, and Gemma 3, which does not, is");
  std::vector<std::string_view> known;
  for (const ModelFamily& family : model_families()) {
    for (const std::string_view type : family.model_types) {
      if (type == model_type) return family;
      known.push_back(type);
    }
  }
  fail("config.json: model_type is {}; expected one of {}", excerpt(model_type),
       fmt::join(known, ", "));
}

const ModelFamily& family_of(const Hyperparameters& hyperparameters) {
  return model_families()[hyperparameters.index()];
}

void check_config(const Hyperparameters& hyperparameters) {
  std::visit([](const auto& family) { check_config(family); }, hyperparameters);
}

TransformerShape shape_of(const Hyperparameters& hyperparameters) {
  return std::visit([](const auto& family) { return shape_of(family); }, hyperparameters);
}

std::unique_ptr<LanguageModel> make_model(const Hyperparameters& hyperparameters) {
  return family_of(hyperparameters).make(hyperparameters);
}

}  // namespace tessera
