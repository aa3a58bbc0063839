#include "models/tokenizers/chars.h"

#include "models/tokenizers/tokenizer_file.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"

namespace tessera {

CharTokenizer CharTokenizer::from_text(std::string_view text) {
  std::vector<std::string> by_code_point;
  for (std::size_t position = 0; position < text.size();) {
    const CodePoint character = code_point_at(text, position);
    if (character.value >= by_code_point.size()) by_code_point.resize(character.value + 1);
    if (by_code_point[character.value].empty()) {
      by_code_point[character.value] = text.substr(position, character.bytes);
    }
    position += character.bytes;
  }
  std::erase(by_code_point, "");
  return from_characters(by_code_point);
}

CharTokenizer CharTokenizer::from_characters(const std::vector<std::string>& characters) {
  CharTokenizer tokenizer;
  for (const std::string& character : characters) {
    check(!character.empty(), "character {} is empty", tokenizer.vocab_size());
    const CodePoint point = code_point_at(character, 0);
    check(point.bytes == character.size(), "'{}' is more than one character", character);
    if (point.value >= tokenizer.ids_.size()) tokenizer.ids_.resize(point.value + 1, -1);
    check(tokenizer.ids_[point.value] < 0, "character '{}' occurs twice", character);
    tokenizer.ids_[point.value] = static_cast<std::int32_t>(tokenizer.characters_.size());
    tokenizer.characters_.push_back(character);
  }
  return tokenizer;
}

std::vector<std::int32_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    const CodePoint point = code_point_at(text, position);
    const std::int32_t id = point.value < ids_.size() ? ids_[point.value] : -1;
    check(id >= 0, "character '{}' (U+{:04X}) is not in the vocabulary of {} characters",
          text.substr(position, point.bytes), static_cast<std::uint32_t>(point.value),
          vocab_size());
    tokens.push_back(id);
    position += point.bytes;
  }
  return tokens;
}

std::string CharTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check(token >= 0 && token < vocab_size(), "token {} is outside the vocabulary of {} characters",
          token, vocab_size());
    text += characters_[static_cast<std::size_t>(token)];
  }
  return text;
}

std::string CharTokenizer::spelling(std::int32_t token) const {
  if (token < 0 || token >= vocab_size()) return {};
  return characters_[static_cast<std::size_t>(token)];
}

void CharTokenizer::save(const std::filesystem::path& directory) const {
  write_tokenizer_file(directory, {.vocabulary = characters_});
}

}  // namespace tessera
