// The registry of model families.
//
// A program that makes, reads or writes a model looks its family up here, by a preset's name or by
// the model_type of a config.json. A new family is an alternative of Hyperparameters and a row of
// the table in registry.cpp; docs/adding_a_model.md has the steps.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <variant>
#include <vector>

#include "models/gemma3/config.h"
#include "models/gpt2/config.h"
#include "models/language_model.h"
#include "models/llama/config.h"
#include "models/llama4/config.h"
#include "models/qwen3_moe/config.h"
#include "models/tensor_names.h"

namespace tessera {

/// The hyperparameters of a model of any family. Every alternative has the members vocab_size,
/// context, layers, heads, width and dropout; check_config and shape_of take it.
using Hyperparameters =
    std::variant<Gpt2Config, LlamaConfig, Qwen3MoeConfig, Llama4Config, Gemma3Config>;

struct ModelFamily {
  /// The values of model_type in its config.json.
  std::vector<std::string_view> model_types;
  Presets<Hyperparameters> presets;
  Hyperparameters (*config_from)(const nlohmann::json& config);
  std::unique_ptr<LanguageModel> (*make)(const Hyperparameters& hyperparameters);
  TensorNames tensor_names;
};

/// In the order of Hyperparameters' alternatives.
const std::vector<ModelFamily>& model_families();

/// The presets of all families.
std::vector<std::string_view> model_presets();
/// Raises Error if no family has this preset.
Hyperparameters model_preset(std::string_view name);

/// The family of a config.json. Raises Error if no family has its model_type.
const ModelFamily& family_of(const nlohmann::json& config);
const ModelFamily& family_of(const Hyperparameters& hyperparameters);

/// Raises Error if the hyperparameters are not valid.
void check_config(const Hyperparameters& hyperparameters);
/// The hyperparameters must have passed check_config.
TransformerShape shape_of(const Hyperparameters& hyperparameters);

/// The model, without memory for its parameters. Raises Error if the hyperparameters are not valid.
std::unique_ptr<LanguageModel> make_model(const Hyperparameters& hyperparameters);

}  // namespace tessera
