// Teacher files: the K most likely next tokens of each token of a token file, by another model.
//
// train.teacher is the one of train.bin. The token file stays llm.c's. Numbers are little-endian:
//   int32[256]   header: [0] = 20261129, [1] = version 1, [2] = K, [3] = the teacher's vocabulary;
//                [4] and [5] = number of tokens and [6] and [7] = hash of the tokens, both int64; rest 0
//   a record of each token, about the token behind it:
//                uint16[K] ids, or uint32[K] of a vocabulary of more than 65536, and
//                float16[K] log-probabilities. Minus infinity is an empty place; its id is 0
//
// A record's places are in falling order of their probabilities: the likeliest token comes first, and of
// equally likely ones the smaller id. So empty places come last. All places of a document's last token are
// empty. The hash is FNV-1a over the tokens as uint32, so it does not depend on their width in the token
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "kernels/cross_entropy/op.h"
#include "runtime/half.h"
#include "runtime/input_file.h"
#include "tools/data/token_file.h"

namespace tessera {

/// The teacher file of a token file, whether it exists or not.
std::filesystem::path teacher_file_of(const std::filesystem::path& token_file);

/// The most places of a record: a row's targets are the token behind it and those of the teacher.
inline constexpr std::int64_t kMostPlaces = kMostTargets - 1;

/// Minus infinity: an empty place.
inline const float16 kNoProbability{-std::numeric_limits<float>::infinity()};

/// Records of n tokens: [n, K] each, or fewer places.
struct TeacherRecords {
  std::span<TokenId> ids;
  std::span<float16> log_probabilities;
};

/// The numbers of a header.
struct TeacherHeader {
  std::int64_t top_k, vocab_size, tokens;
  std::uint64_t hash;  // of the tokens

  std::int64_t bytes_per_record() const {
    return top_k * (bytes_per_token(vocab_size) + static_cast<std::int64_t>(sizeof(float16)));
  }
};

/// Reads all tokens once.
std::uint64_t hash_of_tokens(const TokenFile& tokens);

/// An open teacher file. Copies share it, and several threads may read it.
class TeacherFile {
 public:
  static constexpr std::int64_t kHeaderBytes = 1024;

  /// Raises Error with the path unless header and size are exactly as the format says.
  explicit TeacherFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_->path(); }
  const TeacherHeader& header() const { return header_; }

  /// Reads the first `places` places of the records of tokens [first, first + n). Raises Error if the file has
  /// become shorter, or with the first record that the format does not allow: an id that is no token or comes
  /// twice, a log-probability above 0, or places that are not in falling order.
  void read(std::int64_t first, std::int64_t places, const TeacherRecords& records) const;

  /// Reads the tokens once. Raises Error if these are not the tokens of the header.
  void check_tokens(const TokenFile& tokens) const;

 private:
  std::shared_ptr<const InputFile> file_;
  TeacherHeader header_{};
};

/// Writes a teacher file, atomically: produce(take) calls take(records) until those of all tokens have been
/// handed over.
using TakeRecords = std::function<void(const TeacherRecords& records)>;
void write_teacher_file(const std::filesystem::path& path, const TeacherHeader& header,
                        const std::function<void(const TakeRecords& take)>& produce);

}  // namespace tessera
