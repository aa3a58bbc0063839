// Names from other trainers, for hints in messages.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// A name elsewhere, and the key or the value that it means.
struct Synonym {
  std::string_view name, here;
};

/// All of them; docs/names.md lists them. `here` may be two keys, "a' and 'b".
std::span<const Synonym> key_synonyms();
/// In lower case. `here` may go on after the value: "fsdp with sharding.flatten_parameters=true".
std::span<const Synonym> value_synonyms();

/// Advice for the name that nanoGPT, Transformers, torchtitan, FSDP or DeepSpeed give a key, or the
/// key's last part: "block_size" is 'data.sequence_length', and 'model.context' for the model. With
/// the names of all `keys`, "sample_interval" is 'train.sample_every', and so on.
std::optional<std::string> key_synonym(std::string_view name, std::span<const std::string> keys);

/// The value that another spelling means: "bf16" for "bfloat16", "cuda" for "gpu", "fsdp" for
/// "FULL_SHARD", "1000" for "1e3" or "1_000".
std::optional<std::string> value_synonym(std::string_view value);

}  // namespace tessera
