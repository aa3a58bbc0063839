// Token corpus: the sequence of tokens that data.train or data.val names.
//
//   PATH                one token file
//   PATTERN             several, in the order of their paths: data/mine/train_*.bin
//   A, B, ...           those that each part names
//   synthetic:uniform   tokens that are all equally likely
//   synthetic:zipf      token k with a likelihood of about 1 / (k + 1)
//   synthetic:copy      random stretches of 32 tokens, each written twice: a task that can be learnt
//
// Files follow each other without a gap, so the way a set is cut into files changes no sample.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
  /// Reads tokens [first, first + tokens.size()), which must lie inside.
  void read(std::int64_t first, std::span<TokenId> tokens) const;

  /// A source of tokens that no file holds.
  class Generator;

 private:
  TokenCorpus() = default;

  std::string name_;
  std::int64_t size_ = 0;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_;  // of each file in the corpus
  std::shared_ptr<const Generator> generator_;
};

/// The files that a setting names. Raises Error if there are none.
std::vector<std::filesystem::path> token_files_of(const std::filesystem::path& setting);

/// The folder of the first file, where the manifest and the tokenizer are; empty for synthetic data.
std::filesystem::path data_folder_of(const std::filesystem::path& setting);

}  // namespace tessera
