// Mark files: the part that each token of a token file has in training.
//
// Data for fine-tuning has one next to each token file: train.marks next to train.bin. The token file
// stays llm.c's. Numbers are little-endian:
//   int32[256]   header: [0] = 20261122, [1] = version 1, [2] = number of tokens, rest 0
//   uint8[n]     a token's marks: 1 = it is predicted, 2 = a document begins with it, 4 = that document is
//                the rejected answer to the one before it
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "runtime/input_file.h"

namespace tessera {

using TokenMarks = std::uint8_t;
inline constexpr TokenMarks kTrained = 1;
inline constexpr TokenMarks kBegins = 2;
inline constexpr TokenMarks kRejected = 4;
inline constexpr TokenMarks kAllMarks = kTrained | kBegins | kRejected;

/// The mark file of a token file, whether it exists or not.
std::filesystem::path mark_file_of(const std::filesystem::path& token_file);

/// An open mark file. Copies share it, and several threads may read it.
class MarkFile {
 public:
  static constexpr std::int64_t kHeaderBytes = 1024;

  /// Raises Error with the path unless header and size are exactly as the format says, for so many
  /// tokens.
  MarkFile(const std::filesystem::path& path, std::int64_t tokens);

  const std::filesystem::path& path() const { return file_->path(); }
  std::int64_t bytes() const { return file_->size(); }

  /// Reads the marks of tokens [first, first + marks.size()).
  void read(std::int64_t first, std::span<TokenMarks> marks) const;

  /// Reads the whole file once. Raises Error with the first byte that is no mark, or if the FNV-1a
  /// checksum of the file's bytes differs from `checksum`.
  void verify(std::optional<std::uint64_t> checksum = {}) const;

 private:
  std::shared_ptr<const InputFile> file_;
};

/// Writes a mark file, atomically: produce(take) calls take(marks) until all `count` have been handed
/// over.
using TakeMarks = std::function<void(std::span<const TokenMarks> marks)>;
void write_mark_file(const std::filesystem::path& path, std::int64_t count,
                     const std::function<void(const TakeMarks& take)>& produce);

}  // namespace tessera
