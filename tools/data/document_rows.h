// DocumentRows: which documents of a corpus lie in which row.
//
//   documents   a b c | d e | f g h i j | k        rows of 4
//   packed      a b c k     d e . .     f g h i     j . . .
//   padded      a b c .     d e . .     f g h i     j . . .     k . . .
//
// A document that is longer than a row is cut into pieces of a row's length. Packed pieces go, in the
// order of the corpus, to the first row that has room. So the rows depend on the corpus and their
// length alone: not on the seed, the batch size or the ranks.
//
// Every token is predicted once, from the token before it. The last token of a document predicts the
// first of the next one, by which a model learns where documents end. So a piece of n inputs reads
// n + 1 tokens.
//
// In data of pairs a piece is a pair, the chosen document and the rejected one. It is never cut. A pair that is
// longer than a row is left out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/data/row_kind.h"
#include "tools/data/token_corpus.h"

namespace tessera {

/// Whether the second document of a corpus is the rejected answer to the first: the data is of pairs.
bool holds_pairs(const TokenCorpus& corpus);

class DocumentRows {
 public:
  /// Tokens [first, first + tokens) of the corpus, as inputs, and how many of their targets are valid.
  struct Piece {
    std::int64_t first = 0;
    std::int32_t tokens = 0;
    std::int32_t targets = 0;
  };

  /// Reads the corpus once. Documents start where its marks say, or else at `document_token`, which
  /// must be given then. Pieces without a valid target are left out. `kind` is packed or padded. Raises Error if
  /// only some documents have a rejected answer.
  /// Memory: 16 bytes for each piece.
  DocumentRows(const TokenCorpus& corpus, std::int32_t row_length, RowKind kind,
               std::optional<std::int32_t> document_token);

  /// Rows.
  std::int64_t size() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  /// Tokens in all rows.
  std::int64_t inputs() const { return inputs_; }
  std::span<const Piece> row(std::int64_t index) const;
  /// The terms that the loss of a row is the mean of: its valid targets, or its pairs.
  std::int64_t loss_terms(std::int64_t index) const;
  bool has_pairs() const { return pairs_ > 0; }
  /// The pairs of all rows, and those that no row has room for.
  std::int64_t pairs() const { return pairs_ - long_pairs_; }
  std::int64_t long_pairs() const { return long_pairs_; }
  /// The first pair of a row among those of all rows.
  std::int64_t first_pair(std::int64_t index) const {
    return begins_[static_cast<std::size_t>(index)];
  }

 private:
  std::int64_t inputs_ = 0;
  std::int64_t pairs_ = 0, long_pairs_ = 0;
  std::vector<Piece> pieces_;         // row by row
  std::vector<std::int64_t> begins_;  // of the rows in pieces_, and the end
};

}  // namespace tessera
