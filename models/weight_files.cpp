#include "models/weight_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The files that an index names, each once.
std::set<std::string> files_of_index(const fs::path& path) {
  const nlohmann::json index = read_json_file(path);
  check(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
        "{}: 'weight_map' is missing; expected an object that names the file of every tensor",
        path.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    check(file.is_string(), "{}: the file of {} is not a text", path.string(), excerpt(tensor));
    const fs::path name = file.get<std::string>();
    check(!name.empty() && name == name.filename(), "{}: {} is not a plain file name",
          path.string(), excerpt(name.string()));
    names.insert(name.string());
  }
  return names;
}

std::vector<SafetensorsFile> open_files(const fs::path& folder) {
  std::vector<SafetensorsFile> files;
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(single)) {
    files.emplace_back(single);
    return files;
  }
  check(fs::exists(index) || !fs::exists(folder / "pytorch_model.bin"),
        "{}: the weights are in pytorch_model.bin, which is not read; convert it in Transformers "
        "with save_pretrained(DIR, safe_serialization=True)",
        folder.string());
  check(fs::exists(index),
        "{}: no weights here: neither model.safetensors nor model.safetensors.index.json exists",
        folder.string());
  for (const std::string& name : files_of_index(index)) files.emplace_back(folder / name);
  return files;
}

}  // namespace

WeightFiles::WeightFiles(const fs::path& folder, const TensorNames& names)
    : folder_(folder), names_(names), files_(open_files(folder)) {
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, info] : file.tensors()) {
      check(where_.emplace(name, &file).second, "{}: tensor {} is in two files", folder_.string(),
            excerpt(name));
    }
  }
}

Tensor WeightFiles::find(const Parameter& parameter) {
  const std::vector<std::string> names = names_.names_of_parameter(parameter.name());
  const auto name = std::find_if(names.begin(), names.end(),
                                 [&](const std::string& n) { return where_.contains(n); });
  check(name != names.end(), "{}: parameter '{}' is missing", folder_.string(), parameter.name());
  const Tensor stored = where_.at(*name)->tensor(*name);
  check(stored.shape() == parameter.shape(), "{}: parameter '{}' has shape {}, expected {}",
        folder_.string(), parameter.name(), to_string(stored.shape()),
        to_string(parameter.shape()));
  check(is_floating(stored.dtype()), "{}: parameter '{}' has dtype {}, expected a floating one",
        folder_.string(), parameter.name(), name_of(stored.dtype()));
  used_.insert(*name);
  return stored;
}

void WeightFiles::check_all_used() const {
  for (const auto& [name, file] : where_) {
    check(used_.contains(name) || names_.is_not_a_parameter(name),
          "{}: tensor {} does not belong to this model; is config.json of another model?",
          folder_.string(), excerpt(name));
  }
}

std::int64_t WeightFiles::layers() const {
  std::int64_t layers = 0;
  for (const auto& [name, file] : where_) {
    if (const auto layer = layer_of(name, names_)) layers = std::max(layers, *layer + 1);
  }
  return layers;
}

}  // namespace tessera
