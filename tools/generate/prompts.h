// The prompts of a generation, as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/chat_template.h"
#include "models/tokenizers/tokenizer.h"

namespace tessera {

/// A text or, if the text is empty, token ids.
struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids;
};

/// "1,2,3". Raises Error that begins with "--ids" for another text.
std::vector<std::int32_t> parse_ids(const std::string& text);

/// Nothing if the value is no list of token ids.
std::optional<std::vector<std::int32_t>> token_ids(const nlohmann::json& value);

/// The prompts of a file: a JSON list of texts and of lists of ids; or, if the file
/// does not begin with "[", one text per line. Raises Error with the path.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);

/// A user's message as the template wraps it, after a system's message if there is one.
std::string as_conversation(const ChatTemplate& chat, const std::string& system,
                            const std::string& message);

/// Raises Error if there is no token, or if one is outside a vocabulary of this size.
void check_ids(const std::vector<std::int32_t>& ids, std::int64_t vocab_size);

}  // namespace tessera
