#include "tools/data/document_rows.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tools/data/first_fit.h"

namespace tessera {
namespace {

constexpr std::int64_t kTokensAtATime = 1 << 20;

/// Calls take(first, last) for the inputs of every document.
void for_each_document(const TokenCorpus& corpus, TokenId document_token,
                       const std::function<void(std::int64_t first, std::int64_t last)>& take) {
  const std::int64_t inputs = corpus.size() - 1;  // the last token has none to predict
  std::int64_t first = 0;
  std::vector<TokenId> tokens;
  for (std::int64_t begin = 0; begin < inputs; begin += kTokensAtATime) {
    tokens.resize(static_cast<std::size_t>(std::min(kTokensAtATime, inputs - begin)));
    corpus.read(begin, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t at = begin + static_cast<std::int64_t>(i);
      if (tokens[i] != document_token || at == first) continue;
      take(first, at);
      first = at;
    }
  }
  if (first < inputs) take(first, inputs);
}

}  // namespace

DocumentRows::DocumentRows(const TokenCorpus& corpus, std::int32_t row_length, RowKind kind,
                           std::int32_t document_token) {
  std::vector<Piece> pieces;
  std::vector<std::int64_t> rows;  // of each piece
  FirstFit packing(row_length);
  std::int64_t count = 0;
  for_each_document(
      corpus, static_cast<TokenId>(document_token), [&](std::int64_t first, std::int64_t last) {
        for (; first < last; first += row_length) {
          const auto tokens =
              static_cast<std::int32_t>(std::min<std::int64_t>(row_length, last - first));
          pieces.push_back({first, tokens});
          inputs_ += tokens;
          rows.push_back(kind == RowKind::packed ? packing.place(tokens) : count);
          count = std::max(count, rows.back() + 1);
        }
      });
  // Sorted by row; in a row by their place in the corpus.
  begins_.assign(static_cast<std::size_t>(count) + 1, 0);
  for (const std::int64_t row : rows) ++begins_[static_cast<std::size_t>(row) + 1];
  for (std::size_t row = 1; row < begins_.size(); ++row) begins_[row] += begins_[row - 1];
  pieces_.resize(pieces.size());
  std::vector<std::int64_t> next(begins_.begin(), begins_.end() - 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces_[static_cast<std::size_t>(next[static_cast<std::size_t>(rows[i])]++)] = pieces[i];
  }
}

std::span<const DocumentRows::Piece> DocumentRows::row(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  return std::span(pieces_).subspan(static_cast<std::size_t>(begins_[i]),
                                    static_cast<std::size_t>(begins_[i + 1] - begins_[i]));
}

std::int64_t DocumentRows::valid_targets(std::int64_t index) const {
  std::int64_t targets = 0;
  for (const Piece& piece : row(index)) targets += piece.tokens;
  return targets;
}

}  // namespace tessera
