// The tokens that end a generated text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "models/tokenizers/tokenizer.h"

namespace tessera {

using StopTokens = std::set<std::int32_t>;

/// The file in a model's folder that names its stop tokens.
inline constexpr const char* kGenerationConfig = "generation_config.json";

/// The eos_token_id of the model folder's generation_config.json or, without one there, of its
/// config.json: a number or a list. With a tokenizer also the token that ends a turn by the folder's chat
/// template, if it is built in. Empty if there are none. Raises Error for any other eos_token_id.
StopTokens stop_tokens_of(const std::filesystem::path& folder, const Tokenizer* tokenizer);

/// The text of a generation_config.json with these stop tokens, and with all other settings of the one in
/// `base`, a folder or empty.
std::string generation_config(const std::filesystem::path& base, const StopTokens& stop);

/// Adds tokens as a person names them, by id ("128009") or by spelling ("<|eot_id|>"). Raises Error
/// if a text is neither an id nor one token. `tokenizer` may be null: then there are ids only.
void add_stop_tokens(StopTokens& stop, const std::vector<std::string>& names,
                     const Tokenizer* tokenizer);

}  // namespace tessera
