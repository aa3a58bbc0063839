// Token files: a whole tokenized corpus in one flat array.
//
// The format is llm.c's (dev/data/data_common.py, "GPT-2"), so its tools' files work here and the
// other way round. Everything is little-endian:
//   int32[256]   header: [0] = 20240520, [1] = 1 (version), [2] = number of tokens, rest 0
//   uint16[n]    the tokens
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "runtime/file.h"

namespace tessera {

using TokenId = std::uint16_t;

/// A token file, mapped: opening it reads the header, and pages come from disk as they are used.
/// Copies share the mapping.
class TokenFile {
 public:
  /// Raises Error with the path unless header and size are exactly as the format says.
  explicit TokenFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_->path(); }
  std::span<const TokenId> tokens() const { return tokens_; }

  /// Reads the whole file once; raises Error naming the first token that is not below `vocab_size`.
  void check_vocabulary(std::int64_t vocab_size) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::span<const TokenId> tokens_;
};

/// Writes a token file, atomically.
void write_token_file(const std::filesystem::path& path, std::span<const TokenId> tokens);

}  // namespace tessera
