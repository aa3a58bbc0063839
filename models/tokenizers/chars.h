// The tokenizer of nanoGPT's character-level examples: one token per character.
//
// Every Unicode code point that occurs in the training text is a token. Ids ascend with code points.
#pragma once

#include "models/tokenizers/tokenizer.h"

namespace tessera {

class CharTokenizer : public Tokenizer {
 public:
  /// The vocabulary of a text. Raises Error if the text is not UTF-8.
  static CharTokenizer from_text(std::string_view text);
  /// Characters in the order of their ids, each as UTF-8. Raises Error unless every one is a single
  /// code point and none occurs twice.
  static CharTokenizer from_characters(const std::vector<std::string>& characters);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(characters_.size()); }
  std::string spelling(std::int32_t token) const override;
  void save(const std::filesystem::path& directory) const override;

 private:
  /// The characters by id.
  std::vector<std::string> characters_;
  /// The ids by code point, up to the greatest in the vocabulary; -1: not in the vocabulary.
  std::vector<std::int32_t> ids_;
};

}  // namespace tessera
