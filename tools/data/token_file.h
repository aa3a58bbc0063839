// Token files: a tokenized corpus in one flat array.
//
// The formats are llm.c's (dev/data/data_common.py): its files work here, and ours there. Numbers
// are little-endian:
//   int32[256]   header: [0] = magic number, [1] = version, [2] = number of tokens, rest 0. llm.c's files
//                have fewer than 2^31 tokens. Of larger ones [2] has the lower 31 bits, [3] the upper ones
//   the tokens   uint16[n] with magic number 20240520 and version 1 (llm.c's "gpt-2"), or
//                uint32[n] with magic number 20240801 and version 7 (llm.c's "llama-3")
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "runtime/input_file.h"

namespace tessera {

using TokenId = std::uint32_t;

/// Bytes of a token in the file of a vocabulary: 2 up to 65536 tokens, else 4.
constexpr std::int64_t bytes_per_token(std::int64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

/// An open token file. Copies share it, and several threads may read it.
class TokenFile {
 public:
  /// Bytes before the first token.
  static constexpr std::int64_t kHeaderBytes = 1024;

  /// Raises Error with the path unless header and size are exactly as the format says.
  explicit TokenFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_->path(); }
  /// Bytes of the file.
  std::int64_t bytes() const { return file_->size(); }
  /// Number of tokens.
  std::int64_t size() const { return (bytes() - kHeaderBytes) / width_; }

  /// Reads tokens [first, first + tokens.size()). Raises Error if the file has become shorter.
  void read(std::int64_t first, std::span<TokenId> tokens) const;

  /// Reads the whole file once. Raises Error with the first token that is not below `vocab_size`,
  /// or if the FNV-1a checksum of the file's bytes differs from `checksum`.
  void verify(std::int64_t vocab_size, std::optional<std::uint64_t> checksum = {}) const;

 private:
  std::shared_ptr<const InputFile> file_;
  std::int64_t width_ = 2;  // bytes of a token
};

/// Writes a token file, atomically, in the format of the vocabulary's size. Raises Error if a token
/// is not below `vocab_size`.
void write_token_file(const std::filesystem::path& path, std::span<const TokenId> tokens,
                      std::int64_t vocab_size = 65536);

/// The same for `count` tokens that come piece by piece: produce(take) calls take(tokens) until all
/// have been handed over.
using TakeTokens = std::function<void(std::span<const TokenId> tokens)>;
void write_token_file(const std::filesystem::path& path, std::int64_t count,
                      std::int64_t vocab_size,
                      const std::function<void(const TakeTokens& take)>& produce);

}  // namespace tessera
