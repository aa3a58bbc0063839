// Token files: a tokenized corpus in one flat array.
//
// The format is llm.c's (dev/data/data_common.py, "GPT-2"): its files work here, and ours there.
// Numbers are little-endian:
//   int32[256]   header: [0] = 20240520, [1] = 1 (version), [2] = number of tokens, rest 0
//   uint16[n]    the tokens
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "runtime/input_file.h"

namespace tessera {

using TokenId = std::uint16_t;

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
  std::int64_t size() const { return (bytes() - kHeaderBytes) / 2; }

  /// Reads tokens [first, first + tokens.size()). Raises Error if the file has become shorter.
  void read(std::int64_t first, std::span<TokenId> tokens) const;

  /// Reads the whole file once. Raises Error with the first token that is not below `vocab_size`, or
  /// if the FNV-1a checksum of the file's bytes differs from `checksum`.
  void verify(std::int64_t vocab_size, std::optional<std::uint64_t> checksum = {}) const;

 private:
  std::shared_ptr<const InputFile> file_;
};

/// Writes a token file, atomically.
void write_token_file(const std::filesystem::path& path, std::span<const TokenId> tokens);

}  // namespace tessera
