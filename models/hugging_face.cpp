#include "models/hugging_face.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "kernels/cast/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/host_pieces.h"
#include "runtime/safetensors.h"

namespace tessera {
namespace {

constexpr std::string_view kGpt2Prefix = "transformer.";

nlohmann::json parse_json(const std::filesystem::path& path) {
  try {
    return nlohmann::json::parse(read_text_file(path));
  } catch (const nlohmann::json::exception& problem) {
    fail("{}: not valid JSON: {}", path.string(), problem.what());
  }
}

/// The safetensors files of a model folder: one, or those its index names.
std::vector<SafetensorsFile> open_weights(const std::filesystem::path& folder) {
  std::vector<SafetensorsFile> files;
  const auto single = folder / "model.safetensors";
  const auto index_path = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(single)) {
    files.emplace_back(single);
    return files;
  }
  check(std::filesystem::exists(index_path),
        "{}: no model here: neither model.safetensors nor model.safetensors.index.json exists",
        folder.string());
  const nlohmann::json index = parse_json(index_path);
  check(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
        "{}: has no 'weight_map'", index_path.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    check(file.is_string(), "{}: the file of '{}' is not a string", index_path.string(), tensor);
    const std::filesystem::path name = file.get<std::string>();
    check(name == name.filename(), "{}: '{}' is not a plain file name", index_path.string(),
          name.string());
    names.insert(name.string());
  }
  for (const std::string& name : names) files.emplace_back(folder / name);
  return files;
}

/// Tensors that checkpoints carry but that are no parameters: GPT-2's causal masks, and the head,
/// which is tied to the embedding.
bool is_not_a_parameter(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name == "lm_head.weight";
}

/// Where every parameter lies: by its own name, or by its name without GPT-2's prefix.
class WeightMap {
 public:
  explicit WeightMap(const std::filesystem::path& folder)
      : folder_(folder), files_(open_weights(folder)) {
    for (const SafetensorsFile& file : files_) {
      for (const auto& [name, info] : file.tensors()) where_[name] = &file;
    }
  }

  /// The whole stored tensor of a parameter. Raises Error if missing or of another shape.
  Tensor find(const Parameter& parameter) {
    std::string name = parameter.name();
    if (!where_.contains(name) && name.starts_with(kGpt2Prefix)) {
      name = name.substr(kGpt2Prefix.size());
    }
    const auto found = where_.find(name);
    check(found != where_.end(), "{}: parameter '{}' is missing", folder_.string(),
          parameter.name());
    const Tensor stored = found->second->tensor(name);
    check(stored.shape() == parameter.shape(), "{}: parameter '{}' has shape {}, expected {}",
          folder_.string(), parameter.name(), to_string(stored.shape()),
          to_string(parameter.shape()));
    check(is_floating(stored.dtype()), "{}: parameter '{}' has dtype {}, expected a floating one",
          folder_.string(), parameter.name(), name_of(stored.dtype()));
    used_.insert(name);
    return stored;
  }

  void check_all_used() const {
    for (const auto& [name, file] : where_) {
      check(used_.contains(name) || is_not_a_parameter(name),
            "{}: tensor '{}' does not belong to this model; is config.json of another model?",
            folder_.string(), name);
    }
  }

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> where_;
  std::set<std::string> used_;
};

}  // namespace

Gpt2Config read_gpt2_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  const nlohmann::json config = parse_json(path);
  check(config.is_object(), "{}: not a JSON object", path.string());
  try {
    return gpt2_config_from(config);
  } catch (const Error& error) {
    fail("{}: {}", folder.string(), error.what());
  }
}

std::unique_ptr<LanguageModel> make_pretrained(const std::filesystem::path& folder) {
  return std::make_unique<Gpt2>(read_gpt2_config(folder));
}

void load_parameters(const std::filesystem::path& folder, const std::vector<Shard>& shards) {
  WeightMap weights(folder);
  std::vector<Tensor> sources;
  for (const Shard& shard : shards) {
    const Tensor whole = weights.find(shard.parameter);
    const std::int64_t count = shard.data.numel();
    sources.push_back(whole.reshape({whole.numel()}).slice(shard.first, shard.first + count));
  }
  weights.check_all_used();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    // Converted on the host, where the file is mapped: the same bits on every device.
    write_from_host(shards[i].data, [&](const Tensor& piece, std::int64_t begin) {
      const Tensor source = sources[i].slice(begin, begin + piece.numel());
      if (source.dtype() == piece.dtype()) {
        piece.copy_from(source);
      } else {
        cast(piece, source);
      }
    });
  }
}

void save_pretrained(const std::filesystem::path& folder, const LanguageModel& model,
                     ShardedParameters& parameters) {
  if (context().rank() != 0) {
    parameters.visit_whole([](const Parameter&, const Tensor&) {});
    return;
  }
  TensorInfos infos;
  for (const Shard& shard : parameters.shards()) {
    infos.push_back({shard.parameter.name(), {.shape = shard.parameter.shape()}});
  }
  make_writable_directory(folder);
  write_file_atomically(folder / "config.json", model.config().dump(2) + "\n");
  write_safetensors(
      folder / "model.safetensors", infos, {{"format", "pt"}}, [&](const auto& write) {
        parameters.visit_whole([&](const Parameter&, const Tensor& whole) { write(whole); });
      });
}

}  // namespace tessera
