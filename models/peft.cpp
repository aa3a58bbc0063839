#include "models/peft.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "models/config_reader.h"
#include "models/hugging_face.h"
#include "models/shard_file.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "runtime/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
/// The metadata of the tensors' file that names AdapterOptions::base.
constexpr const char* kBase = "base";
constexpr std::string_view kPrefix = "base_model.model.";

std::string peft_name(const Parameter& factor) {
  return std::string(kPrefix) + factor.name();
}

std::string last_part(const std::string& layer) {
  return layer.substr(layer.rfind('.') + 1);
}

/// The layers whose factors the file has. Raises Error if a tensor is no factor.
std::set<std::string> layers_of(const SafetensorsFile& file) {
  std::set<std::string> layers;
  for (const auto& [name, info] : file.tensors()) {
    const bool is_factor = name.starts_with(kPrefix) &&
                           (name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight"));
    check(is_factor, "{}: tensor {} is no factor of an adapter; expected {}<layer>.lora_A.weight",
          kTensors, excerpt(name), kPrefix);
    layers.insert(name.substr(
        kPrefix.size(), name.size() - kPrefix.size() - std::string_view(".lora_A.weight").size()));
  }
  check(!layers.empty(), "{}: there is no tensor", kTensors);
  return layers;
}

/// Raises Error if the configuration asks for more than a low-rank product.
void check_supported(const nlohmann::json& config) {
  const ConfigReader reader(config);
  const std::string type = reader.text("peft_type", "");
  check(type == "LORA", "{}: peft_type is {}; expected \"LORA\"", kConfig, excerpt(type));
  const std::string bias = reader.text("bias", "none");
  check(bias == "none", "{}: bias is {}; expected \"none\"", kConfig, excerpt(bias));
  for (const char* key : {"use_dora", "lora_bias", "use_qalora"}) {
    check(!config.contains(key) || config[key].is_null() || config[key] == false,
          "{}: {} is set; expected false", kConfig, key);
  }
  for (const char* key :
       {"modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication",
        "target_parameters", "trainable_token_indices", "alora_invocation_tokens", "arrow_config",
        "kasa_config", "velora_config", "monteclora_config", "use_bdlora"}) {
    const nlohmann::json value = config.value(key, nlohmann::json());
    check(value.empty(), "{}: {} is {}; expected none", kConfig, key, excerpt(value.dump()));
  }
}

AdapterOptions options_of(const nlohmann::json& config, const SafetensorsFile& file) {
  check_supported(config);
  const ConfigReader reader(config);
  AdapterOptions options = {.rank = reader.whole("r"),
                            .alpha = reader.number("lora_alpha", 8.0),
                            .dropout = reader.number("lora_dropout", 0.0)};
  check(options.rank >= 1, "{}: r is {}; expected at least 1", kConfig, options.rank);
  if (reader.flag("use_rslora", false)) options.scaling = AdapterScaling::rank_stabilized;
  if (const auto base = file.metadata().find(kBase); base != file.metadata().end()) {
    options.base = enum_from_name<AdapterBase>(base->second);
  }
  options.targets = fmt::format("{}", fmt::join(layers_of(file), ","));
  return options;
}

/// The adapters' factors among the parameters.
std::vector<Parameter> factors_of(const std::vector<Parameter>& parameters) {
  std::vector<Parameter> factors;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(factors),
               [](const Parameter& parameter) { return parameter.in_adapter(); });
  return factors;
}

/// PEFT takes the layers whose names end in these texts. Short ones, where no layer without an adapter ends so.
std::vector<std::string> target_modules(const LanguageModel& model) {
  std::set<std::string> adapted, adapted_ends, other_ends;
  for (const Parameter& weight : adaptable_weights(model)) {
    const std::string layer = layer_name(weight.name());
    (weight.adapter() != nullptr ? adapted_ends : other_ends).insert(last_part(layer));
    if (weight.adapter() != nullptr) adapted.insert(layer);
  }
  const bool ends_suffice =
      std::none_of(adapted_ends.begin(), adapted_ends.end(),
                   [&](const std::string& end) { return other_ends.contains(end); });
  const std::set<std::string>& chosen = ends_suffice ? adapted_ends : adapted;
  return {chosen.begin(), chosen.end()};
}

/// Whether the layers keep their weights as [in, out].
bool is_in_out(const LanguageModel& model) {
  const std::vector<Parameter> weights = adaptable_weights(model);
  return std::any_of(weights.begin(), weights.end(), [](const Parameter& weight) {
    return weight.adapter() != nullptr && weight_layout(weight) == WeightLayout::in_out;
  });
}

nlohmann::json config_of(const LanguageModel& model, const AdapterOptions& options,
                         const fs::path& base) {
  return {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", fs::exists(base) ? model_folder(base).string() : base.string()},
      {"r", options.rank},
      {"lora_alpha", options.alpha},
      {"lora_dropout", options.dropout},
      {"use_rslora", options.scaling == AdapterScaling::rank_stabilized},
      {"target_modules", target_modules(model)},
      {"fan_in_fan_out", is_in_out(model)},
      {"bias", "none"},
      {"inference_mode", true}};
}

template <typename Body>
auto with_folder(const fs::path& folder, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    fail("{}: {}", folder.string(), error.what());
  }
}

}  // namespace

fs::path adapter_folder(const fs::path& given) {
  for (const fs::path& folder : {given, given / "model"}) {
    if (fs::exists(folder / kConfig)) return folder;
  }
  return {};
}

AdapterFiles read_adapter(const fs::path& given) {
  const fs::path folder = adapter_folder(given);
  check(!folder.empty(), "{}: no adapter here: neither {} nor model/{} exists", given.string(),
        kConfig, kConfig);
  const nlohmann::json config = read_json_file(folder / kConfig);
  const SafetensorsFile file(folder / kTensors);
  return with_folder(folder, [&]() -> AdapterFiles {
    check(config.is_object(), "{}: not a JSON object", kConfig);
    return {folder, options_of(config, file),
            ConfigReader(config).text("base_model_name_or_path", "")};
  });
}

std::map<std::string, Tensor> adapter_tensors(const fs::path& folder,
                                              const std::vector<Parameter>& parameters) {
  const SafetensorsFile file(folder / kTensors);
  std::map<std::string, Tensor> tensors;
  with_folder(folder, [&] {
    for (const Parameter& factor : factors_of(parameters)) {
      const std::string name = peft_name(factor);
      check(file.contains(name), "tensor {} is missing", name);
      const TensorInfo& stored = file.tensors().at(name);
      check(stored.shape == factor.shape(), "tensor {} has shape {}, expected {}", name,
            to_string(stored.shape), to_string(factor.shape()));
      check(is_floating(stored.dtype), "tensor {} has dtype {}, expected a floating one", name,
            name_of(stored.dtype));
      tensors.emplace(factor.name(), file.tensor(name));
    }
  });
  return tensors;
}

void load_adapter(const fs::path& folder, const std::vector<Shard>& shards) {
  std::vector<Parameter> parameters;
  for (const Shard& shard : shards) parameters.push_back(shard.parameter);
  const auto tensors = adapter_tensors(folder, parameters);
  for (const Shard& shard : shards) {
    const auto stored = tensors.find(shard.parameter.name());
    if (stored != tensors.end()) fill_shard(shard, {*stored}, folder);
  }
}

void save_adapter(const fs::path& folder, const LanguageModel& model, const AdapterOptions& options,
                  const fs::path& base, ShardedParameters& parameters) {
  const auto is_factor = [](const Parameter& parameter) { return parameter.in_adapter(); };
  if (context().rank() != 0) {
    parameters.visit_whole([](const Parameter&, const Tensor&) {}, is_factor);
    return;
  }
  TensorInfos infos;
  for (const Parameter& factor : factors_of(parameters.parameters())) {
    infos.push_back({peft_name(factor), {.shape = factor.shape()}});
  }
  make_writable_directory(folder);
  write_file_atomically(folder / kConfig, config_of(model, options, base).dump(2) + "\n");
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (options.base == AdapterBase::nf4) metadata[kBase] = enum_name(AdapterBase::nf4);
  write_safetensors(folder / kTensors, infos, metadata, [&](const auto& write) {
    parameters.visit_whole([&](const Parameter&, const Tensor& whole) { write(whole); }, is_factor);
  });
}

ModelFiles find_model(const fs::path& given, const fs::path& adapter) {
  if (!adapter.empty()) {
    return {model_folder(given), read_adapter(adapter).folder};
  }
  const fs::path folder = adapter_folder(given);
  if (folder.empty() || fs::exists(folder / "config.json")) return {model_folder(given), {}};
  const std::string base = read_adapter(folder).base;
  check(!base.empty(),
        "{}: the adapter names no base model; give the base's folder and --adapter {}",
        folder.string(), folder.string());
  try {
    return {model_folder(base), folder};
  } catch (const Error& error) {
    fail("{}: the adapter's base is not there: {}; give the base's folder and --adapter {}",
         folder.string(), error.what(), folder.string());
  }
}

}  // namespace tessera
