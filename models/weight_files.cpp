#include "models/weight_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "models/fp8_form.h"
#include "runtime/check.h"
#include "runtime/hash.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// As many problems of a folder as an error lists.
constexpr std::size_t kMostProblems = 8;

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

std::optional<std::string> WeightFiles::stored_name(const std::string& usual) const {
  for (const std::string& name : stored_names(usual, names_)) {
    if (where_.contains(name)) return name;
  }
  return std::nullopt;
}

std::vector<StoredTensor> WeightFiles::expected(const Parameter& parameter) const {
  if (stored_name(parameter.name())) return {{parameter.name(), parameter.shape()}};
  return usual_tensors(parameter.name(), parameter.shape(), names_);
}

void WeightFiles::check_holds(const std::vector<Parameter>& parameters) const {
  std::vector<std::string> problems;
  std::set<std::string> used;
  const auto check_tensor = [&](const StoredTensor& tensor) {
    const auto name = stored_name(tensor.name);
    if (!name) {
      problems.push_back(fmt::format("parameter '{}' is missing", tensor.name));
      return;
    }
    used.insert(*name);
    const TensorInfo& stored = where_.at(*name)->tensors().at(*name);
    const bool has_scales = is_fp8(stored.dtype) && where_.contains(scales_name(*name));
    if (has_scales) used.insert(scales_name(*name));
    if (stored.shape != tensor.shape) {
      problems.push_back(fmt::format("parameter '{}' has shape {}, expected {}", tensor.name,
                                     to_string(stored.shape), to_string(tensor.shape)));
    } else if (!is_floating(stored.dtype) && !has_scales) {
      problems.push_back(fmt::format(
          "parameter '{}' has dtype {}, expected {}", tensor.name, name_of(stored.dtype),
          is_fp8(stored.dtype) ? "a tensor " + scales_name(*name) + ", too" : "a floating one"));
    }
  };
  for (const Parameter& parameter : parameters) {
    for (const StoredTensor& tensor : expected(parameter)) check_tensor(tensor);
  }
  for (const auto& [name, file] : where_) {
    if (used.contains(name) || names_.is_not_a_parameter(name)) continue;
    problems.push_back(fmt::format("tensor {} does not belong to this model", excerpt(name)));
  }
  if (problems.empty()) return;
  const std::size_t more = problems.size() - std::min(problems.size(), kMostProblems);
  problems.resize(problems.size() - more);
  fail("{}: {}{}; is config.json of another model?", folder_.string(), fmt::join(problems, "; "),
       more == 0 ? "" : fmt::format("; and {} more", more));
}

Tensor WeightFiles::stored(const std::string& name) const {
  const Tensor tensor = where_.at(name)->tensor(name);
  if (!is_fp8(tensor.dtype())) return tensor;
  const std::string scales = scales_name(name);
  try {
    return from_fp8_form(tensor, where_.at(scales)->tensor(scales));
  } catch (const Error& error) {
    fail("{}: {}: {}", folder_.string(), excerpt(name), error.what());
  }
}

NamedTensors WeightFiles::find(const Parameter& parameter) const {
  const auto tensor = [&](const std::string& usual) {
    const auto name = stored_name(usual);
    check(name.has_value(), "{}: parameter '{}' is missing", folder_.string(), usual);
    return this->stored(*name);
  };
  const std::vector<StoredTensor> usual =
      usual_tensors(parameter.name(), parameter.shape(), names_);
  NamedTensors tensors;
  if (stored_name(parameter.name())) {
    const std::vector<Tensor> pieces = cut(tensor(parameter.name()), usual);
    for (std::size_t i = 0; i < usual.size(); ++i) tensors.emplace_back(usual[i].name, pieces[i]);
    return tensors;
  }
  for (const StoredTensor& part : usual) tensors.emplace_back(part.name, tensor(part.name));
  return tensors;
}

std::optional<Tensor> WeightFiles::find(const std::string& name) const {
  const auto stored = stored_name(name);
  if (!stored) return std::nullopt;
  return where_.at(*stored)->tensor(*stored);
}

std::uint64_t WeightFiles::fingerprint() const {
  constexpr std::size_t kSample = 4096;
  Fnv1a hash;
  for (const auto& [name, file] : where_) {
    const Tensor tensor = file->tensor(name);
    const std::span<const std::byte> bytes(tensor.raw(), tensor.bytes());
    const std::size_t sample = std::min(kSample, bytes.size());
    hash.add(fmt::format("{} {} {} ", name, name_of(tensor.dtype()), to_string(tensor.shape())));
    hash.add(bytes.first(sample));
    hash.add(bytes.last(sample));
  }
  return hash.value();
}

std::int64_t WeightFiles::layers() const {
  std::int64_t layers = 0;
  for (const auto& [name, file] : where_) {
    if (names_.is_not_a_parameter(name)) continue;
    if (const auto layer = layer_of(name, names_)) layers = std::max(layers, *layer + 1);
  }
  return layers;
}

}  // namespace tessera
