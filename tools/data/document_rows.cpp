#include "tools/data/document_rows.h"

#include <algorithm>
#include <functional>

#include "runtime/check.h"
#include "tools/data/first_fit.h"

namespace tessera {
namespace {

constexpr std::int64_t kTokensAtATime = 1 << 20;

using Piece = DocumentRows::Piece;

/// Calls take(piece) for the pieces of every document. Returns the number of pairs.
std::int64_t for_each_piece(const TokenCorpus& corpus, std::int32_t row_length,
                            std::optional<std::int32_t> document_token,
                            const std::function<void(const Piece& piece)>& take) {
  const bool marked = corpus.has_marks(), of_pairs = holds_pairs(corpus);
  const auto first_token = static_cast<TokenId>(document_token.value_or(0));
  const std::int64_t inputs = corpus.size() - 1;  // the last token has none to predict
  std::vector<TokenId> tokens;
  std::vector<TokenMarks> marks;
  std::int64_t documents = 0, pairs = 0;
  Piece piece;
  const auto end_piece = [&](std::int64_t next) {
    if (piece.targets > 0) take(piece);
    piece = {.first = next};
  };
  for (std::int64_t begin = 0; begin < inputs; begin += kTokensAtATime) {
    const auto count = static_cast<std::size_t>(std::min(kTokensAtATime, inputs - begin));
    if (marked) {
      marks.resize(count + 1);
      corpus.read_marks(begin, marks);
    } else {
      tokens.resize(count);
      corpus.read(begin, tokens);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const bool rejected = marked && (marks[i] & kRejected) != 0;
      const bool starts = marked ? (marks[i] & kBegins) != 0 : tokens[i] == first_token;
      documents += starts && !rejected ? 1 : 0;
      pairs += rejected ? 1 : 0;
      const bool is_full = piece.tokens == row_length && !of_pairs;
      if ((starts && !rejected) || is_full) end_piece(begin + static_cast<std::int64_t>(i));
      ++piece.tokens;
      piece.targets += marked ? marks[i + 1] & kTrained : 1;
    }
  }
  end_piece(inputs);
  check(pairs == 0 || pairs == documents, "{}: {} of {} documents have a rejected answer",
        corpus.name(), pairs, documents);
  return pairs;
}

}  // namespace

bool holds_pairs(const TokenCorpus& corpus) {
  if (!corpus.has_marks()) return false;
  std::vector<TokenMarks> marks;
  for (std::int64_t begin = 1; begin < corpus.size(); begin += kTokensAtATime) {
    marks.resize(static_cast<std::size_t>(std::min(kTokensAtATime, corpus.size() - begin)));
    corpus.read_marks(begin, marks);
    const auto second = std::find_if(marks.begin(), marks.end(),
                                     [](TokenMarks mark) { return (mark & kBegins) != 0; });
    if (second != marks.end()) return (*second & kRejected) != 0;
  }
  return false;
}

DocumentRows::DocumentRows(const TokenCorpus& corpus, std::int32_t row_length, RowKind kind,
                           std::optional<std::int32_t> document_token) {
  std::vector<Piece> pieces;
  std::vector<std::int64_t> rows;  // of each piece
  FirstFit packing(row_length);
  std::int64_t count = 0;
  pairs_ = for_each_piece(corpus, row_length, document_token, [&](const Piece& piece) {
    if (piece.tokens > row_length) {
      ++long_pairs_;
      return;
    }
    pieces.push_back(piece);
    rows.push_back(kind == RowKind::packed ? packing.place(piece.tokens) : count);
    count = std::max(count, rows.back() + 1);
    inputs_ += piece.tokens;
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

std::int64_t DocumentRows::loss_terms(std::int64_t index) const {
  if (has_pairs()) return std::ssize(row(index));
  std::int64_t targets = 0;
  for (const Piece& piece : row(index)) targets += piece.targets;
  return targets;
}

}  // namespace tessera
