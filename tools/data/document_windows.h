// Windows of documents: the parts of a token file that a model sees one by one.
//
//   a document, windows of 4    a b c d e f g h i
//   window 0                    a b c d
//   window 1                        c d e f
//   window 2                            e f g h
//   window 3                                g h i
//
// A document starts where the mark file says, or else at a token. With neither the file is one document.
// One that is longer than a window is cut into windows that overlap by half. So the model predicts all but
// the first tokens from half a window or more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tools/data/mark_file.h"
#include "tools/data/token_file.h"

namespace tessera {

/// Tokens [first, first + tokens) of a file.
struct DocumentWindow {
  std::int64_t first = 0;
  std::int64_t tokens = 0;
  /// So many of them are in the window before, too.
  std::int64_t repeated = 0;
  bool ends_document = false;
};

/// Calls take(window) for the windows of all documents, in their order. Full windows have `length` tokens.
/// Reads the file once, piece by piece.
void for_each_window(const TokenFile& tokens, const std::optional<MarkFile>& marks,
                     std::optional<std::int32_t> document_token, std::int64_t length,
                     const std::function<void(const DocumentWindow& window)>& take);

}  // namespace tessera
