// Batches of token sequences, addressed by seed, step and row.
//
// The tokens of a row are a function of these three alone. Any rank, and any restarted run, computes
// its own rows.
//
// Row r of step s is number sizes.first_row(s) + r of the run (batch_sizes.h). It comes from the one source that
// there is, as the sample of that number (row_source.h); or from the source that the mixture has for it
// (mixture.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cross_entropy/op.h"
#include "runtime/tensor.h"
#include "tools/data/batch_sizes.h"
#include "tools/data/mixture.h"
#include "tools/data/row_source.h"

namespace tessera {

struct Batch {
  Tensor inputs;   // [rows, T] i32
  Tensor targets;  // [rows, T] i32; kIgnoreIndex where nothing is to be predicted
  /// [rows, T] i32 (models/documents.h); undefined: a row is one document.
  Tensor document_starts = {};
  /// In data of pairs, [rows, T] f32 (kernels/preference/op.h).
  Tensor reference = {};
  /// With a teacher, `targets` and the teacher's tokens: [rows, T, 1 + K] (soft_targets.h).
  Targets soft = {};

  /// The targets of the loss.
  Targets loss_targets() const { return soft.defined() ? soft : Targets(targets); }
};

class TokenLoader {
 public:
  /// The rows of one source.
  explicit TokenLoader(RowSource source);
  TokenLoader(TokenCorpus corpus, std::int64_t sequence_length, SampleOrder order,
              std::uint64_t seed = 0, std::optional<std::int32_t> document_token = {},
              RowKind rows = RowKind::windows)
      : TokenLoader(
            RowSource(std::move(corpus), sequence_length, order, seed, document_token, rows)) {}
  /// The rows of several, which have the same sequence length, document token and kind of rows.
  TokenLoader(std::vector<RowSource> sources, Mixture mixture);

  const std::vector<RowSource>& sources() const { return sources_; }
  /// Samples per epoch.
  std::int64_t samples() const;
  std::int64_t sequence_length() const { return sources_.front().sequence_length(); }
  /// The share of the places in the rows of all sources that hold a token.
  double share_of_inputs() const;
  /// The rows of each source among the first `rows` of the run.
  std::vector<std::int64_t> rows_of_sources(std::int64_t rows) const;

  /// Rows [first_row, first_row + rows) of the global batch of step `step` (from 0), on the current
  /// context's device.
  Batch load(std::int64_t step, std::int64_t first_row, std::int64_t rows,
             const BatchSizes& sizes) const;
  /// The terms that the loss of these rows is the mean of: their valid targets, or their pairs.
  std::int64_t loss_terms(std::int64_t step, std::int64_t first_row, std::int64_t rows,
                          const BatchSizes& sizes) const;

 private:
  /// The source of a row of the run, and its sample.
  std::pair<std::size_t, std::int64_t> sample_of(std::int64_t row) const;

  std::vector<RowSource> sources_;
  /// None: one source.
  std::optional<Mixture> mixture_;
};

}  // namespace tessera
