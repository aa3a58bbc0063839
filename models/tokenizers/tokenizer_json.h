// Reading a tokenizer of Hugging Face's: tokenizer.json, or vocab.json and merges.txt.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/tokenizers/bpe_tokenizer.h"

namespace tessera {

/// The tokenizer that a parsed tokenizer.json describes; `file` is its text and `config` that of
/// the tokenizer_config.json next to it, or empty. Raises Error for a model other than BPE, for a
/// stage that is not supported, and for a description that is not valid.
std::unique_ptr<BpeTokenizer> read_tokenizer_json(const nlohmann::json& description,
                                                  std::string file, std::string config = {});

/// GPT-2's tokenizer from vocab.json and merges.txt of a folder. It has no added tokens. `save`
/// writes it as a tokenizer.json.
std::unique_ptr<BpeTokenizer> read_gpt2_files(const std::filesystem::path& directory);

}  // namespace tessera
