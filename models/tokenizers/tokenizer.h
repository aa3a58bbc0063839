// From text to token ids and back.
//
// A tokenizer is saved as `tokenizer.json` next to the data or the model that it belongs to, in the
// format of Hugging Face's tokenizers library. The kinds:
//   bytes   256 tokens, one per byte, spelled as in GPT-2's byte-level BPE
//   chars   one token per character; the id is its place in the vocabulary
//   BPE     a published tokenizer (bpe_tokenizer.h); also from GPT-2's vocab.json and merges.txt
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Raises Error if the text cannot be spelled in the vocabulary.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// As encode, but a text that looks like an added token ("<|endoftext|>") is text.
  virtual std::vector<std::int32_t> encode_plain(std::string_view text) const {
    return encode(text);
  }
  /// The tokens of a text between those that begin and end every text, if the tokenizer has any.
  virtual std::vector<std::int32_t> with_special_tokens(std::vector<std::int32_t> tokens) const {
    return tokens;
  }
  /// Raises Error if a token is outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  /// Tokens are 0, ..., vocab_size() - 1.
  virtual std::int64_t vocab_size() const = 0;
  /// The token as the vocabulary spells it. Empty if there is no such token.
  virtual std::string spelling(std::int32_t token) const = 0;
  /// Writes tokenizer.json and tokenizer_config.json, with which Transformers' AutoTokenizer opens
  /// the folder. Each is replaced atomically.
  virtual void save(const std::filesystem::path& directory) const = 0;

  /// Whether `directory` has the files of a tokenizer.
  static bool exists(const std::filesystem::path& directory);
  /// The tokenizer saved in `directory`. Raises Error with the path if its files are missing,
  /// damaged or not supported.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& directory);

  static constexpr const char* kFileName = "tokenizer.json";
  static constexpr const char* kConfigName = "tokenizer_config.json";
};

}  // namespace tessera
