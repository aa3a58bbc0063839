// Adapters in the format of PEFT, Hugging Face's library (pypi.org/project/peft).
//
// A folder holds adapter_config.json and adapter_model.safetensors. A layer's factors are the tensors
//
//   base_model.model.<layer>.lora_A.weight  [r, in]       base_model.model.<layer>.lora_B.weight  [out, r]
//
// The configuration names the base model, the rank and the layers. GPT-2's layers keep their weights as
// [in, out], which PEFT calls fan_in_fan_out. PEFT has no such tensors for stacks of experts: those of Tessera
// have the same names, with a first dimension for the experts. PEFT does not note how the base was held, so the
// metadata of the tensors' file say it: "base": "nf4".
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/adapters.h"
#include "sharding/shard.h"

namespace tessera {

/// The files of an adapter.
struct AdapterFiles {
  /// The folder with adapter_config.json.
  std::filesystem::path folder;
  /// The targets are the names of the layers in the file of tensors.
  AdapterOptions options;
  /// base_model_name_or_path; may be empty.
  std::string base;
};

/// `given` or `given`/model, the one with an adapter_config.json; an empty path if neither has one.
std::filesystem::path adapter_folder(const std::filesystem::path& given);

/// Reads an adapter's configuration and the names of its tensors. Raises Error if there is no adapter, or if it
/// is another kind than LoRA, or needs more: DoRA, trained biases or other modules, or ranks that differ by
/// layer.
AdapterFiles read_adapter(const std::filesystem::path& given);

/// The factors of `parameters` that a folder of PEFT holds, on the host, by the parameters' names. Raises Error if one is
/// missing or has another shape.
std::map<std::string, Tensor> adapter_tensors(const std::filesystem::path& folder,
                                              const std::vector<Parameter>& parameters);

/// Fills the shards of the adapters' factors. `shards` lists every parameter of the model. Call it in
/// Strategy::write_masters(). Raises Error as adapter_tensors() does, before anything is written, and if a value is NaN
/// or infinite.
void load_adapter(const std::filesystem::path& folder, const std::vector<Shard>& shards);

/// Writes adapter_config.json and adapter_model.safetensors (f32), each file atomically, the weights last. `base`
/// is the name or path of the base model; for a run folder that of its model/ is written. A collective, as
/// save_pretrained.
void save_adapter(const std::filesystem::path& folder, const LanguageModel& model,
                  const AdapterOptions& options, const std::filesystem::path& base,
                  ShardedParameters& parameters);

/// A model's folder, and that of the adapter on it.
struct ModelFiles {
  std::filesystem::path model;
  /// Empty: the model has no adapter.
  std::filesystem::path adapter;

  /// The folder that the user trained or downloaded: the adapter's, or the model's.
  const std::filesystem::path& own() const { return adapter.empty() ? model : adapter; }
};

/// The files that a user names: `given` is a model as model_folder() takes it, or an adapter, whose base is read
/// where its configuration says. `adapter`, if it is not empty, is an adapter to use on `given`. Raises Error if a
/// folder or the base is missing.
ModelFiles find_model(const std::filesystem::path& given, const std::filesystem::path& adapter);

}  // namespace tessera
