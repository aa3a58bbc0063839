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

/// The eos_token_id of the model folder's generation_config.json or, without one there, of its
/// config.json: a number or a list. Empty if neither has one. Raises Error for any other value.
StopTokens stop_tokens_of(const std::filesystem::path& folder);

/// Adds tokens as a person names them, by id ("128009") or by spelling ("<|eot_id|>"). Raises Error
/// if a text is neither an id nor one token. `tokenizer` may be null: then there are ids only.
void add_stop_tokens(StopTokens& stop, const std::vector<std::string>& names,
                     const Tokenizer* tokenizer);

}  // namespace tessera
