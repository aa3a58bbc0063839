// The tokenizer that needs no vocabulary: every byte is a token.
#pragma once

#include "models/tokenizers/tokenizer.h"

namespace tessera {

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocab_size() const override { return 256; }
  std::string spelling(std::int32_t token) const override;
  void save(const std::filesystem::path& directory) const override;

  /// The spelling of every byte in tokenizer.json.
  static std::vector<std::string> vocabulary();
};

}  // namespace tessera
