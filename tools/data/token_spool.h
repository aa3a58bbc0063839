// Token spool: the tokens of documents on disk, until it is known which are for validation.
//
// Documents are appended as they are encoded, so memory does not grow with the corpus. The folder has
//
//   tokens      the tokens of all documents, 32 bits each
//   ends        the end of every document in `tokens`, 64 bits each
//   hashes      the hash of every document's text, 64 bits each
//   done.jsonl  the settings; then a line per input file whose documents are complete: its name,
//               bytes and checksum, and the tokens and documents so far
//
// A program that is killed leaves the folder behind. A later one with the same settings and inputs
// goes on behind the last complete file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/data/json_entries.h"
#include "tools/data/manifest.h"
#include "tools/data/token_file.h"

namespace tessera {

class TokenSpool {
 public:
  /// Opens the spool in `folder`, which it creates. It is empty unless a spool of the same settings
  /// is there; then it has the documents of the first of `inputs`, as far as these files have not
  /// changed. Raises Error if that spool is damaged.
  TokenSpool(const std::filesystem::path& folder, const std::string& settings,
             const std::vector<std::filesystem::path>& inputs);

  /// The input files that are complete.
  const std::vector<Manifest::File>& done() const { return done_; }
  std::int64_t tokens() const { return totals_.tokens; }
  std::int64_t documents() const { return totals_.documents; }

  /// Adds tokens to the document in progress. Raises Error if they cannot be written.
  void append(std::span<const std::int32_t> tokens);
  /// `hash`: of the document's text.
  void end_document(std::uint64_t hash);
  /// The documents of this input file are complete.
  void end_file(const std::filesystem::path& input);

  /// Calls take(first, last) with the range of tokens of every document, in order.
  void for_each_document(const std::function<void(std::int64_t first, std::int64_t last)>& take);
  /// Calls take(hash) for every document, in order.
  void for_each_hash(const std::function<void(std::uint64_t hash)>& take);
  /// Reads tokens [first, first + tokens.size()).
  void read(std::int64_t first, std::span<TokenId> tokens);

 private:
  struct Totals {
    std::int64_t tokens = 0, documents = 0;
  };
  /// Takes over the files that an earlier program completed.
  void load(const std::string& settings, const std::vector<std::filesystem::path>& inputs);
  /// Counts a complete file; false if it has changed since. Raises Error if the entry is damaged.
  bool take_over(const JsonEntries& entry, const std::filesystem::path& input);
  void write_line(const std::string& line);
  void flush();

  std::filesystem::path folder_;
  std::fstream tokens_, ends_, hashes_;
  std::ofstream lines_;
  std::vector<Manifest::File> done_;
  std::vector<std::string> done_lines_;
  Totals totals_;
};

}  // namespace tessera
