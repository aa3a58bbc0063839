// From text to token ids and back.
//
// A tokenizer is saved as `tokenizer.json` next to the data or the model that it belongs to. The
// file is in the format of Hugging Face's tokenizers library, so Transformers reads it too. Two
// kinds of it are read here, both BPE without merges:
//   bytes   256 tokens, one per byte, spelled as in GPT-2's byte-level BPE
//   chars   one token per character; the id is its place in the vocabulary
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
  /// Raises Error if a token is outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  /// Tokens are 0, ..., vocab_size() - 1.
  virtual std::int64_t vocab_size() const = 0;
  /// Writes directory / "tokenizer.json" atomically.
  virtual void save(const std::filesystem::path& directory) const = 0;

  /// The tokenizer saved in `directory`. Raises Error with the path if the file is missing, damaged
  /// or of another kind.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& directory);

  static constexpr const char* kFileName = "tokenizer.json";
};

}  // namespace tessera
