// Batches of token sequences, addressed by seed, step and row.
//
// The tokens of a row are a function of these three alone. Any rank, and any restarted run, computes
// its own rows.
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
// Samples are numbered through the run: row r of step s is sample s * batch_size + r. An epoch is one
// pass over all samples. In shuffled order each epoch has its own order of them. Its grid of windows
// starts at its own offset in [0, T), so that a token has other neighbours in every epoch; such an
// epoch leaves out fewer than 2T tokens at the ends of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/tensor.h"
#include "tools/data/document_rows.h"
#include "tools/data/row_kind.h"
#include "tools/data/token_corpus.h"

namespace tessera {

struct Batch {
  Tensor inputs;   // [rows, T] i32
  Tensor targets;  // [rows, T] i32; kIgnoreIndex where nothing is to be predicted
  /// [rows, T] i32 (models/documents.h); undefined: a row is one document.
  Tensor document_starts = {};
};

enum class SampleOrder {
  sequential,  // window after window, and from the first again at the end; for validation
  shuffled,
};

class TokenLoader {
 public:
  /// Sequential order ignores the seed. With `document_token` documents start at that token, and
  /// batches say where. Raises Error if the corpus has fewer than sequence_length + 1 tokens for
  /// windows, or no document for other rows, or if those have neither a `document_token` nor marks.
  TokenLoader(TokenCorpus corpus, std::int64_t sequence_length, SampleOrder order,
              std::uint64_t seed = 0, std::optional<std::int32_t> document_token = {},
              RowKind rows = RowKind::windows);

  /// Samples per epoch.
  std::int64_t samples() const { return samples_; }
  std::int64_t sequence_length() const { return sequence_length_; }
  /// The share of the places in an epoch's rows that hold a token.
  double share_of_inputs() const;

  /// Rows [first_row, first_row + rows) of the global batch of step `step` (from 0), on the current
  /// context's device.
  Batch load(std::int64_t step, std::int64_t first_row, std::int64_t rows,
             std::int64_t batch_size) const;
  /// The number of valid targets in these rows, without their tokens.
  std::int64_t valid_targets(std::int64_t step, std::int64_t first_row, std::int64_t rows,
                             std::int64_t batch_size) const;

 private:
  /// The rows of a batch, one after the other.
  struct Rows {
    std::vector<std::int32_t> inputs, targets, document_starts;
  };

  void set_windows();
  void set_document_rows(RowKind kind);
  /// The sample's number in its epoch, before or after shuffling.
  std::int64_t place_in_epoch(std::int64_t sample) const;
  /// The window's first token.
  std::int64_t window_begin(std::int64_t sample) const;
  /// Appends the inputs from `first` on, and their targets.
  void add_tokens(std::int64_t first, std::int64_t tokens, Rows& rows) const;
  void add_documents(std::int64_t sample, Rows& rows) const;

  TokenCorpus corpus_;
  std::int64_t sequence_length_;
  SampleOrder order_;
  std::uint64_t seed_;
  std::optional<std::int32_t> document_token_;
  std::int64_t samples_ = 0;
  /// Windows: the grid's offset is below this.
  std::int64_t offsets_ = 1;
  /// None: windows.
  std::optional<DocumentRows> document_rows_;
  /// Whether a row has several documents.
  bool is_packed_ = false;
};

}  // namespace tessera
