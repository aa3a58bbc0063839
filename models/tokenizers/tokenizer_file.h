// The tokenizer.json of the tokenizers of bytes and of characters.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// A BPE tokenizer without merges.
struct TokenizerFile {
  /// The text of every token, by id.
  std::vector<std::string> vocabulary;
  /// Whether the vocabulary spells bytes, as GPT-2's does: see spelling_of_byte.
  bool byte_level = false;
};

/// Nothing if the file describes a tokenizer of another kind. Raises Error if its ids are not
/// 0, 1, 2, ...
std::optional<TokenizerFile> tokenizer_file_from(const nlohmann::json& description);
/// Writes tokenizer.json and tokenizer_config.json, each atomically.
void write_tokenizer_file(const std::filesystem::path& directory, const TokenizerFile& tokenizer);
/// Writes tokenizer_config.json. If `text` is empty, it says that tokenizer.json is complete.
void write_tokenizer_config(const std::filesystem::path& directory, const std::string& text);

/// The ByteLevel stage of a tokenizer.json, as pre-tokenizer and as decoder. `use_regex`: it cuts
/// text as GPT-2 does.
nlohmann::ordered_json byte_level_stage(bool use_regex);

}  // namespace tessera
