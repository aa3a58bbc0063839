#include "models/tokenizers/bytes.h"

#include "models/tokenizers/byte_spelling.h"
#include "models/tokenizers/tokenizer_file.h"
#include "runtime/check.h"

namespace tessera {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    check(token >= 0 && token < 256, "token {} is outside the vocabulary of 256 bytes", token);
    text.push_back(static_cast<char>(token));
  }
  return text;
}

std::string ByteTokenizer::spelling(std::int32_t token) const {
  if (token < 0 || token >= 256) return {};
  return spelling_of_byte(static_cast<unsigned char>(token));
}

void ByteTokenizer::save(const std::filesystem::path& directory) const {
  write_tokenizer_file(directory, {.vocabulary = vocabulary(), .byte_level = true});
}

std::vector<std::string> ByteTokenizer::vocabulary() {
  std::vector<std::string> spellings;
  for (int byte = 0; byte < 256; ++byte) {
    spellings.push_back(spelling_of_byte(static_cast<unsigned char>(byte)));
  }
  return spellings;
}

}  // namespace tessera
