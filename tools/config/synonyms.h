// Names from other trainers, for hints in messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// Advice for the name that nanoGPT, Transformers or torchtitan give a key, or the key's last part:
/// "block_size" is 'data.sequence_length', and 'model.context' for the model.
std::optional<std::string> key_synonym(std::string_view name);

/// The value that another spelling means: "bf16" for "bfloat16", "cuda" for "gpu", "fsdp" for
/// "FSDP", "1000" for "1e3".
std::optional<std::string> value_synonym(std::string_view value);

}  // namespace tessera
