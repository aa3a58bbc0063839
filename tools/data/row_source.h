// Rows of one corpus: windows of its tokens, or whole documents.
//
// A sample is a window of T + 1 tokens: the first T are the inputs, the last T the targets, each
// the token after its input. Windows lie end to end with one token shared, so that every token is
// predicted once:
//
//     tokens    a b c d e f g h i j ...        T = 3
//     window 0  a b c d                        inputs a b c, targets b c d
//     window 1        d e f g
//     window 2              g h i j
//
// Or a sample is a row of whole documents, packed or one each (document_rows.h). Places behind the last
// document have no valid target. Tokens of a packed row attend to their own document only.
//
// Samples are numbered through the run. An epoch is one pass over all samples. In shuffled order each epoch has
// its own order of them. Its grid of windows starts at its own offset in [0, T), so that a token has other
// neighbours in every epoch; such an epoch leaves out fewer than 2T tokens at the ends of the file.
//
// The order is a permutation with random access, and tokens are read from the files when a row is built. So
// memory does not grow with the corpus, but for the 16 bytes of a document that packed and padded rows take.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/data/distillation.h"
#include "tools/data/document_rows.h"
#include "tools/data/row_kind.h"
#include "tools/data/token_corpus.h"

namespace tessera {

enum class SampleOrder {
  sequential,  // window after window, and from the first again at the end; for validation
  shuffled,
};

/// Rows of a batch, one after the other.
struct TokenRows {
  std::vector<std::int32_t> inputs, targets;
  /// In rows of documents, where each token's document starts. Empty: a row is one document.
  std::vector<std::int32_t> document_starts;
  /// In rows of pairs, the reference's log-probability of a document at its first token, and zeros.
  std::vector<float> reference;
  /// With a teacher, the soft targets of each token (soft_targets.h).
  std::vector<std::int32_t> soft_classes;
  std::vector<float> soft_weights;
};

class RowSource {
 public:
  /// Sequential order ignores the seed. With `document_token` documents start at that token. Raises Error
  /// if the corpus has fewer than sequence_length + 1 tokens for windows, or no document for other rows, or
  /// if those have neither a `document_token` nor marks.
  RowSource(TokenCorpus corpus, std::int64_t sequence_length, SampleOrder order, std::uint64_t seed,
            std::optional<std::int32_t> document_token, RowKind rows);

  const std::string& name() const { return corpus_.name(); }
  /// Samples per epoch.
  std::int64_t samples() const { return samples_; }
  std::int64_t sequence_length() const { return sequence_length_; }
  std::optional<std::int32_t> document_token() const { return document_token_; }
  RowKind kind() const { return kind_; }
  /// The tokens in the rows of an epoch, without empty places.
  std::int64_t inputs() const;

  /// Appends a sample's row.
  void add_row(std::int64_t sample, TokenRows& rows) const;
  /// The terms that the loss of a sample's row is the mean of: its valid targets, or its pairs.
  std::int64_t loss_terms(std::int64_t sample) const;

  /// Whether its rows are of pairs of answers (document_rows.h), and how many there are.
  bool has_pairs() const { return document_rows_ && document_rows_->has_pairs(); }
  const DocumentRows& document_rows() const { return *document_rows_; }
  /// A hash of the pairs' tokens and of their places in rows.
  std::uint64_t pairs_fingerprint() const;
  /// The reference model's log-probabilities: two numbers for each pair, in the order of the rows.
  void set_reference(std::vector<float> log_probabilities);
  /// Gives the rows soft targets by the corpus's teacher files (TokenCorpus::open_teachers).
  void set_teacher(const Distillation& distillation, std::int64_t vocab_size);
  /// Those of a token; 0 without a teacher.
  std::int64_t soft_targets() const { return distillation_ ? 1 + distillation_->top_k : 0; }

 private:
  void set_windows();
  void set_document_rows();
  /// The sample's number in its epoch, before or after shuffling.
  std::int64_t place_in_epoch(std::int64_t sample) const;
  /// The window's first token.
  std::int64_t window_begin(std::int64_t sample) const;
  /// Appends the inputs from `first` on, and their targets.
  void add_tokens(std::int64_t first, std::int64_t tokens, TokenRows& rows) const;
  /// Appends the soft targets of the inputs from `first` on. Their targets are the last in `rows`.
  void add_soft_targets(std::int64_t first, std::int64_t tokens, TokenRows& rows) const;
  void add_documents(std::int64_t sample, TokenRows& rows) const;
  /// Makes the piece in the last rows of `rows` a pair, whose first token is at `place` of its row.
  void add_pair(const DocumentRows::Piece& piece, std::int64_t pair, std::int32_t place,
                TokenRows& rows) const;

  TokenCorpus corpus_;
  std::int64_t sequence_length_;
  SampleOrder order_;
  std::uint64_t seed_;
  std::optional<std::int32_t> document_token_;
  RowKind kind_;
  std::int64_t samples_ = 0;
  /// Windows: the grid's offset is below this.
  std::int64_t offsets_ = 1;
  /// None: windows.
  std::optional<DocumentRows> document_rows_;
  /// Empty: zeros.
  std::vector<float> reference_;
  /// None: no teacher.
  std::optional<Distillation> distillation_;
};

}  // namespace tessera
