// Reading and writing model folders in Hugging Face's layout:
// config.json, model.safetensors (or model.safetensors.index.json with several files).
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "models/gpt2.h"
#include "models/language_model.h"
#include "sharding/shard.h"

namespace tessera {

/// What `folder`/config.json says. Raises Error if the folder, the file or the model type is not
/// usable.
Gpt2Config read_gpt2_config(const std::filesystem::path& folder);

/// The model that `folder`/config.json describes, without memory for its parameters.
std::unique_ptr<LanguageModel> make_pretrained(const std::filesystem::path& folder);

/// Fills the shards from the folder's safetensors, converting to f32; only the shards' own elements
/// are read. `shards` lists every parameter of the model, with empty shards where a rank owns
/// nothing. Call the strategy's weights_changed() after it. GPT-2 files may leave out the prefix
/// "transformer.". Raises Error, before anything is written, if a parameter is missing, has another
/// shape, or the file holds an unknown tensor.
void load_parameters(const std::filesystem::path& folder, const std::vector<Shard>& shards);

/// Writes config.json and model.safetensors (f32), each file atomically, the weights last. A
/// collective: every rank calls it, the first writes. No rank ever holds more than one whole
/// parameter beside its shards.
void save_pretrained(const std::filesystem::path& folder, const LanguageModel& model,
                     ShardedParameters& parameters);

}  // namespace tessera
