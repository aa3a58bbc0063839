// Mixtures: which source each row of a run comes from.
//
// In a phase, a range of steps, each source has a weight, a whole number. The order is the fair one: after
// any number n of a phase's rows, a source of weight w out of a total W has given n w / W rows, rounded up or
// down, and after W rows exactly w.
//
//   weights 3, 1, 1    rows  0 1 2 0 0 | 0 1 2 0 0 | ...
//
// Row k of a source, counted from 0, may come from row floor(k W / w) of the phase on, and must have come
// before row ceil((k + 1) W / w). Of the rows that may come, the one that must come first does. That all come
// in time is a theorem (Baruah et al., "Proportionate progress: a notion of fairness in resource
// allocation", Algorithmica 1996; one resource). The order repeats after W rows.
//
// The order depends on the weights alone: not on ranks, and no state needs to be kept for a resume.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tools/data/batch_sizes.h"
#include "tools/data/mixture_kind.h"

namespace tessera {

/// The order of one phase.
class FairOrder {
 public:
  /// Raises Error if no weight is positive, or their sum is above kMostWeight.
  explicit FairOrder(std::vector<std::int64_t> weights);

  static constexpr std::int64_t kMostWeight = (std::int64_t{1} << 31) - 1;

  /// The rows of each source among the first `rows`.
  std::vector<std::int64_t> counts(std::int64_t rows) const;
  /// The source of a row, and which of its rows that is, from 0. Several threads may ask.
  std::pair<std::size_t, std::int64_t> at(std::int64_t row) const;

  std::int64_t total() const { return total_; }

 private:
  struct Table;

  /// The counts before row kStride * i of a period, for each i that was asked for so far.
  std::vector<std::int64_t> counts_before(std::int64_t row) const;

  std::vector<std::int64_t> weights_;
  std::int64_t total_ = 0;
  std::shared_ptr<Table> table_;
};

/// A source's part of a mixture, from one step to another.
struct MixturePart {
  std::size_t source = 0;
  double weight = 1.0;
  std::int64_t from_step = 1;
  /// 0: to the end of the run.
  std::int64_t until_step = 0;
};

class Mixture {
 public:
  struct Source {
    std::int64_t rows = 0;
    /// Tokens in all its rows.
    std::int64_t inputs = 0;
  };

  /// Raises Error if no source has a weight in some step, or the weights have no common measure.
  Mixture(const std::vector<MixturePart>& parts, const std::vector<Source>& sources,
          MixtureKind kind, const BatchSizes& sizes);

  /// The source of a row of the run, and which of its rows that is, from 0.
  std::pair<std::size_t, std::int64_t> at(std::int64_t row) const;
  /// The rows of each source among the first `rows`.
  std::vector<std::int64_t> counts(std::int64_t rows) const;
  /// The rows of an epoch: by epochs, those after which each source had its passes, if the weights hold for
  /// the whole run; otherwise as many as all sources have.
  std::int64_t epoch_rows() const { return epoch_rows_; }

 private:
  struct Phase {
    std::int64_t first_row = 0;
    /// The rows of each source before the phase.
    std::vector<std::int64_t> before;
    FairOrder order;
  };

  const Phase& phase_of(std::int64_t row) const;

  std::vector<Phase> phases_;
  std::int64_t epoch_rows_ = 0;
};

/// Whole numbers in the ratios of the weights, which are decimal numbers of up to nine places.
std::vector<std::int64_t> whole_weights(std::span<const double> weights);

}  // namespace tessera
