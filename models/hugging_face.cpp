#include "models/hugging_face.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/hub.h"
#include "models/routers.h"
#include "models/shard_file.h"
#include "models/weight_files.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "runtime/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";

nlohmann::json read_config(const fs::path& folder) {
  const fs::path path = folder / kConfig;
  nlohmann::json config = read_json_file(path);
  check(config.is_object(), "{}: not a JSON object", path.string());
  return config;
}

bool has_weights(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") ||
         fs::exists(folder / "model.safetensors.index.json");
}

/// The routers' biases that files hold in addition to the parameters.
void read_router_biases(const WeightFiles& weights, const LanguageModel& model) {
  Routers* const routers = model.routers();
  if (routers == nullptr) return;
  for (std::size_t layer = 0; layer < routers->biases().size(); ++layer) {
    const std::optional<Tensor> stored = weights.find(routers->biases()[layer].name);
    if (!stored) continue;
    check(stored->dtype() == DType::f32, "{} has dtype {}, expected f32",
          routers->biases()[layer].name, name_of(stored->dtype()));
    const auto* values = stored->data<float>();
    routers->set_bias(layer, {values, values + stored->numel()});
  }
}

/// The routers' biases as tensors; none if the model has none.
NamedTensors router_biases(const LanguageModel& model) {
  NamedTensors tensors;
  if (model.routers() == nullptr || !model.routers()->has_biases()) return tensors;
  for (const RouterBias& bias : model.routers()->biases()) {
    tensors.emplace_back(bias.name, Tensor::from(bias.values, {model.routers()->experts()}));
  }
  return tensors;
}

}  // namespace

fs::path model_folder(const fs::path& given) {
  const fs::path folder = !fs::exists(given) && is_hub_name(given) ? hub_snapshot(given) : given;
  if (fs::exists(folder / kConfig)) return folder;
  if (fs::exists(folder / "model" / kConfig)) return folder / "model";
  fail("{}: no model here: neither config.json nor model/config.json exists", folder.string());
}

Hyperparameters read_hyperparameters(const fs::path& given) {
  const fs::path folder = model_folder(given);
  const nlohmann::json config = read_config(folder);
  try {
    const ModelFamily& family = family_of(config);
    const Hyperparameters hyperparameters = family.config_from(config);
    // Before anything is made: a damaged count must not cost memory or time.
    if (has_weights(folder)) {
      const std::int64_t stored = WeightFiles(folder, family.tensor_names).layers();
      const std::int64_t layers = shape_of(hyperparameters).layers;
      check(layers <= stored, "config.json has {} layers; the weights have {}", layers, stored);
    }
    return hyperparameters;
  } catch (const Error& error) {
    fail("{}: {}", folder.string(), error.what());
  }
}

std::unique_ptr<LanguageModel> make_pretrained(const fs::path& given) {
  const fs::path folder = model_folder(given);
  const Hyperparameters hyperparameters = read_hyperparameters(folder);
  auto model = make_model(hyperparameters);
  // So far only config.json gives these sizes. The files are checked before the caller allocates
  // memory for the parameters.
  WeightFiles(folder, family_of(hyperparameters).tensor_names).check_holds(parameters_of(*model));
  load_router_biases(folder, *model);
  return model;
}

std::string weights_fingerprint(const fs::path& given) {
  const fs::path folder = model_folder(given);
  const WeightFiles weights(folder, family_of(read_config(folder)).tensor_names);
  return fmt::format("{:016x}", weights.fingerprint());
}

void load_router_biases(const fs::path& given, const LanguageModel& model) {
  const fs::path folder = model_folder(given);
  if (model.routers() == nullptr) return;
  try {
    read_router_biases(WeightFiles(folder, family_of(model.config()).tensor_names), model);
  } catch (const Error& error) {
    fail("{}: {}", folder.string(), error.what());
  }
}

namespace {

/// Fills the shards of a model with these parameters.
void load_shards(const fs::path& given, std::vector<Parameter> parameters,
                 const std::vector<Shard>& shards) {
  const fs::path folder = model_folder(given);
  const WeightFiles weights(folder, family_of(read_config(folder)).tensor_names);
  std::erase_if(parameters, [](const Parameter& parameter) { return parameter.in_adapter(); });
  weights.check_holds(parameters);
  for (const Shard& shard : shards) {
    if (!shard.parameter.in_adapter()) fill_shard(shard, weights.find(shard.parameter), folder);
  }
}

}  // namespace

void load_parameters(const fs::path& folder, const std::vector<Shard>& shards) {
  std::vector<Parameter> parameters;
  for (const Shard& shard : shards) parameters.push_back(shard.parameter);
  load_shards(folder, std::move(parameters), shards);
}

void load_parameters(const fs::path& folder, const ShardedParameters& parameters) {
  load_shards(folder, parameters.parameters(), parameters.shards());
}

void save_pretrained(const fs::path& folder, const LanguageModel& model,
                     ShardedParameters& parameters) {
  if (context().rank() != 0) {
    parameters.visit_whole([](const Parameter&, const Tensor&) {});
    return;
  }
  const TensorNames names = family_of(model.config()).tensor_names;
  const NamedTensors biases = router_biases(model);
  TensorInfos infos;
  for (const Parameter& parameter : parameters.parameters()) {
    for (const StoredTensor& tensor : usual_tensors(parameter.name(), parameter.shape(), names)) {
      infos.push_back({tensor.name, {.shape = tensor.shape}});
    }
  }
  for (const auto& [name, bias] : biases) infos.push_back({name, {.shape = bias.shape()}});
  make_writable_directory(folder);
  write_file_atomically(folder / kConfig, model.config().dump(2) + "\n");
  write_safetensors(
      folder / "model.safetensors", infos, {{"format", "pt"}}, [&](const auto& write) {
        parameters.visit_whole([&](const Parameter& parameter, const Tensor& whole) {
          const auto tensors = usual_tensors(parameter.name(), parameter.shape(), names);
          for (const Tensor& piece : cut(whole, tensors)) write(piece);
        });
        for (const auto& [name, bias] : biases) write(bias);
      });
}

}  // namespace tessera
