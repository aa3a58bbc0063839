#include "models/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "models/config_reader.h"
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

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> families = {
      {.model_types = {"gpt2"},
       .presets = gpt2_presets(),
       .preset = [](std::string_view name) -> Hyperparameters { return gpt2_preset(name); },
       .config_from = [](const nlohmann::json& config) -> Hyperparameters {
         return gpt2_config_from(config);
       },
       .make = [](const Hyperparameters& hyperparameters) -> std::unique_ptr<LanguageModel> {
         return std::make_unique<Gpt2>(std::get<Gpt2Config>(hyperparameters));
       },
       .tensor_names = gpt2_tensor_names()},
      {.model_types = {enum_names<LlamaKind>().begin(), enum_names<LlamaKind>().end()},
       .presets = llama_presets(),
       .preset = [](std::string_view name) -> Hyperparameters { return llama_preset(name); },
       .config_from = [](const nlohmann::json& config) -> Hyperparameters {
         return llama_config_from(config);
       },
       .make = [](const Hyperparameters& hyperparameters) -> std::unique_ptr<LanguageModel> {
         return std::make_unique<Llama>(std::get<LlamaConfig>(hyperparameters));
       },
       .tensor_names = llama_tensor_names()},
      {.model_types = {"qwen3_moe"},
       .presets = qwen3_moe_presets(),
       .preset = [](std::string_view name) -> Hyperparameters { return qwen3_moe_preset(name); },
       .config_from = [](const nlohmann::json& config) -> Hyperparameters {
         return qwen3_moe_config_from(config);
       },
       .make = [](const Hyperparameters& hyperparameters) -> std::unique_ptr<LanguageModel> {
         return std::make_unique<Qwen3Moe>(std::get<Qwen3MoeConfig>(hyperparameters));
       },
       .tensor_names = qwen3_moe_tensor_names()},
      {.model_types = {"llama4_text", "llama4"},
       .presets = llama4_presets(),
       .preset = [](std::string_view name) -> Hyperparameters { return llama4_preset(name); },
       .config_from = [](const nlohmann::json& config) -> Hyperparameters {
         return llama4_config_from(config);
       },
       .make = [](const Hyperparameters& hyperparameters) -> std::unique_ptr<LanguageModel> {
         return std::make_unique<Llama4>(std::get<Llama4Config>(hyperparameters));
       },
       .tensor_names = llama4_tensor_names()},
  };
  return families;
}

std::vector<std::string_view> model_presets() {
  std::vector<std::string_view> names;
  for (const ModelFamily& family : model_families()) {
    names.insert(names.end(), family.presets.begin(), family.presets.end());
  }
  return names;
}

Hyperparameters model_preset(std::string_view name) {
  for (const ModelFamily& family : model_families()) {
    if (std::count(family.presets.begin(), family.presets.end(), name) > 0) {
      return family.preset(name);
    }
  }
  fail("unknown preset '{}': choose one of {}", name, fmt::join(model_presets(), ", "));
}

const ModelFamily& family_of(const nlohmann::json& config) {
  const std::string model_type = ConfigReader(config).text("model_type", "");
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
