// Names from other trainers, for hints in messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// Advice for a key, or its last part, under the name that nanoGPT, Transformers or torchtitan give
/// it: "block_size" is 'data.sequence_length', and 'model.context' for the model.
std::optional<std::string> key_synonym(std::string_view name);

/// The value for one of another spelling: "bf16" for "bfloat16", "cuda" for "gpu", "fsdp" for
/// "FSDP", "1000" for "1e3".
std::optional<std::string> value_synonym(std::string_view value);

}  // namespace tessera
