// Reading and writing model folders in Hugging Face's layout.
//
// A model folder holds config.json and model.safetensors (or model.safetensors.index.json with
// several files). Every function that reads one also takes the folder of a training run, and reads
// its folder model/, and the name of a model in the cache of Hugging Face's hub.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/registry.h"
#include "sharding/shard.h"

namespace tessera {

/// Returns `given` or `given`/model, the one with a config.json. If no such folder exists and `given`
/// has the form "org/name", the folder in the cache of Hugging Face's hub (hub.h). Raises Error if
/// there is no config.json.
std::filesystem::path model_folder(const std::filesystem::path& given);

/// The contents of `folder`'s config.json. Raises Error if the file or its model type is not
/// usable, or if config.json has more layers than the weights.
Hyperparameters read_hyperparameters(const std::filesystem::path& folder);

/// The model in `folder`, without memory for its parameters. Raises one Error that lists every
/// parameter that is missing or of another shape in the files, and every unknown tensor.
std::unique_ptr<LanguageModel> make_pretrained(const std::filesystem::path& folder);

/// WeightFiles::fingerprint() of a model's weights, as 16 hexadecimal digits.
std::string weights_fingerprint(const std::filesystem::path& folder);

/// Sets the biases of the model's routers to those in the folder, if it has any. Raises Error if a
/// bias has another dtype or number of values. make_pretrained calls it.
void load_router_biases(const std::filesystem::path& folder, const LanguageModel& model);

/// Fills the shards from the folder's safetensors, converting to f32; only the shards' own elements
/// are read. `shards` lists every parameter of the model, with empty shards where a rank owns
/// nothing. Call it in Strategy::write_masters(). Raises Error, before anything is written, if a
/// parameter is missing, has another shape, or the files hold an unknown tensor. Raises Error as well
/// if a value is NaN or infinite; other shards may have been filled then.
void load_parameters(const std::filesystem::path& folder, const std::vector<Shard>& shards);
/// The same for a model of which this rank may have some stages. Factors of adapters are not read.
void load_parameters(const std::filesystem::path& folder, const ShardedParameters& parameters);

/// Writes config.json and model.safetensors (f32, with the biases of routers, if there are any), each
/// file atomically, the weights last. A collective: every rank calls it, the first writes. No rank
/// ever holds more than one whole parameter in addition to its shards.
void save_pretrained(const std::filesystem::path& folder, const LanguageModel& model,
                     ShardedParameters& parameters);

}  // namespace tessera
