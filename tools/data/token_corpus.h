// Token corpus: the sequence of tokens that data.train or data.val names.
//
//   PATH                one token file
//   PATTERN             several, in the order of their paths: data/mine/train_*.bin
//   A, B, ...           those that each part names
//   synthetic:uniform   tokens that are all equally likely
//   synthetic:zipf      token k with a likelihood of about 1 / (k + 1)
//   synthetic:copy      random stretches of 32 tokens, each written twice: a task that can be learnt
//
// A token file may have a mark file next to it (mark_file.h), and a teacher file (teacher_file.h). Files follow each
// other without a gap, so the way a set is cut into files changes no sample.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/data/mark_file.h"
#include "tools/data/teacher_file.h"
#include "tools/data/token_file.h"

namespace tessera {

class TokenCorpus {
 public:
  /// One file.
  TokenCorpus(TokenFile file);
  /// The corpus that a setting names, for a model with so many tokens. Raises Error if a file is
  /// missing, or is not what open_verified (manifest.h) accepts.
  static TokenCorpus open(const std::filesystem::path& setting, std::int64_t vocab_size);

  /// For messages.
  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }
  bool is_generated() const { return generator_ != nullptr; }
  /// Reads tokens [first, first + tokens.size()), which must lie inside. ReadTimes of the current context,
  /// if there is one, learn the time of each file.
  void read(std::int64_t first, std::span<TokenId> tokens) const;

  /// Whether there are mark files next to the token files.
  bool has_marks() const { return !marks_.empty(); }
  /// Reads the marks of tokens [first, first + marks.size()), which must lie inside. has_marks().
  void read_marks(std::int64_t first, std::span<TokenMarks> marks) const;

  /// Opens the teacher files next to the token files. Raises Error if one is missing, has not `top_k` places, or
  /// is not of these tokens or of more than `vocab_size` ones.
  void open_teachers(std::int64_t top_k, std::int64_t vocab_size);
  /// Reads the first `top_k` places of the records of tokens [first, first + n), which must lie inside. Raises
  /// Error as TeacherFile::read does.
  void read_teachers(std::int64_t first, const TeacherRecords& records) const;

  /// A source of tokens that no file holds.
  class Generator;

 private:
  TokenCorpus() = default;

  std::string name_;
  std::int64_t size_ = 0;
  /// Calls read(file, offset, begin, count) for the parts of a range of tokens: `count` tokens from
  /// `offset` in the file, which begin at `begin` in the range.
  template <typename Read>
  void for_each_part(std::int64_t first, std::size_t count, const Read& read) const;

  std::vector<TokenFile> files_;
  std::vector<MarkFile> marks_;        // as many as files, or none
  std::vector<TeacherFile> teachers_;  // likewise
  std::int64_t top_k_ = 0;
  std::vector<std::int64_t> begins_;  // of each file in the corpus
  std::shared_ptr<const Generator> generator_;
};

/// The files that a setting names. Raises Error if there are none.
std::vector<std::filesystem::path> token_files_of(const std::filesystem::path& setting);

/// The folder of the first file, where the manifest and the tokenizer are; empty for synthetic data.
std::filesystem::path data_folder_of(const std::filesystem::path& setting);

}  // namespace tessera
