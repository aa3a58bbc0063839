// InputStream: the text of an input file of `tessera prepare`, packed or not.
//
//   a.jsonl         as it is
//   a.jsonl.gz      unpacked by zlib
//   a.jsonl.zst     unpacked by libzstd
//   a.parquet, a.arrow, a.feather    each row as a line of .jsonl (table_source.h)
//
// The text comes in order and in pieces, so memory does not depend on the file's size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/data/byte_source.h"

namespace tessera {

class InputStream {
 public:
  /// `keys`: the columns to read of a table. Raises Error with the path if the file cannot be opened, as
  /// reading does if it is truncated or damaged.
  explicit InputStream(std::filesystem::path path, const std::vector<std::string>& keys = {});

  /// For messages.
  const std::filesystem::path& path() const { return path_; }
  /// The extension of the contents: ".jsonl" for a.jsonl.gz and for a.parquet.
  const std::string& kind() const { return kind_; }

  /// Appends at most `bytes` bytes to the text. False at the end.
  bool append_to(std::string& text, std::size_t bytes);
  /// All that is left.
  std::string rest();
  /// Sets `line` to the next one, without its line break. False at the end.
  bool next_line(std::string& line);

  /// The bytes of the file that have been read, packed as they are. 0 for a table.
  std::int64_t consumed() const { return source_->consumed(); }

 private:
  std::filesystem::path path_;
  std::string kind_;
  std::unique_ptr<ByteSource> source_;
  /// Lines that have been read ahead, from begin_ on.
  std::string ahead_;
  std::size_t begin_ = 0;
};

/// The extension of the contents of a file of this name; see InputStream::kind().
std::string kind_of_input(const std::filesystem::path& file);

}  // namespace tessera
