// Documents: the texts in files of several kinds.
//
//   .jsonl          a document per line
//   .json           a document per element if the file is a list, else one
//   .yaml, .yml     a document per YAML document, or per element of one that is a list
//   .txt, .md and
//   all others      the file is one document
//
// A file may be packed, and a table's rows are lines of .jsonl (input_stream.h).
//
// The text of a structured document is its string values: those under the keys that the caller asks
// for, at any depth, joined by line breaks. Without keys it is the value of "text" where the document
// has that key, else all string values. Without keys, a sample for fine-tuning (samples.h) is an error:
// its strings alone would lose the speakers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/data/input_stream.h"

namespace tessera {

/// Takes the documents' texts in order. A document comes in one part or several; the last part ends
/// it. `place` is the document's: "a.jsonl:12", or the file.
using DocumentSink = std::function<void(std::string text, bool ends, const std::string& place)>;

/// Whether each document of an input of this kind comes in one part, as those of structured files do.
bool comes_whole(const std::string& kind);

/// The last place in a text where it may be cut in two parts that are encoded apart, or 0.
using FindCut = std::function<std::size_t(std::string_view text)>;

struct DocumentReader {
  /// Keys of structured documents; see above.
  std::vector<std::string> keys;
  /// Text files are handed over in parts that end at such places.
  FindCut find_cut;
  /// Whether text files must be UTF-8. Structured files always must.
  bool utf8 = true;
  /// Takes the place of a line of .jsonl that is not UTF-8 and is left out. Null: such a line is an error.
  std::function<void(const std::string& place)> left_out = {};

  /// Reads a file. Memory: a part of a text file, a line of a .jsonl, a whole .json or .yaml. Raises
  /// Error with the path, and the line or byte, if the file is not what its name says.
  void read(InputStream& file, const DocumentSink& sink) const;
};

/// The size that parts of text files have, or a little more.
inline constexpr std::size_t kPartBytes = std::size_t{1} << 20;

}  // namespace tessera
