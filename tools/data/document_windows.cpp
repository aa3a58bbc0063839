#include "tools/data/document_windows.h"

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

constexpr std::int64_t kPiece = 1 << 20;

}  // namespace

void for_each_window(const TokenFile& tokens, const std::optional<MarkFile>& marks,
                     std::optional<std::int32_t> document_token, std::int64_t length,
                     const std::function<void(const DocumentWindow& window)>& take) {
  const std::int64_t overlap = length / 2;
  std::int64_t begin = 0;  // of the document
  const auto end_document = [&](std::int64_t end) {
    DocumentWindow window = {.first = begin};
    while (window.first + window.repeated < end) {
      window.tokens = std::min(length, end - window.first);
      window.ends_document = window.first + window.tokens == end;
      take(window);
      window.first += length - overlap;
      window.repeated = overlap;
    }
    begin = end;
  };
  std::vector<TokenId> ids;
  std::vector<TokenMarks> own;
  for (std::int64_t first = 0; first < tokens.size(); first += kPiece) {
    const auto count = static_cast<std::size_t>(std::min(kPiece, tokens.size() - first));
    ids.resize(count);
    own.resize(count);
    marks ? marks->read(first, own) : tokens.read(first, ids);
    for (std::size_t i = 0; i < count; ++i) {
      const bool starts = marks ? (own[i] & kBegins) != 0
                                : document_token && ids[i] == static_cast<TokenId>(*document_token);
      if (starts) end_document(first + static_cast<std::int64_t>(i));
    }
  }
  end_document(tokens.size());
}

}  // namespace tessera
