// Rows that tensor-parallel ranks exchange around a product (autograd/tensor_axis.h).
//
// Together they travel in one collective. By rank (RowExchange) each message has the rows of one rank, and
// products run meanwhile. Rank 1 of 4:
//
//   before a product      multiplies the rows of rank 1, 0, 3, 2     those of 0, 3 and 2 arrive meanwhile
//   behind one            forms its sums for rank 2, 3, 0, 1         those for 2, 3 and 0 leave meanwhile
//
// A row's product does not depend on the rows that are multiplied with it, and sums are added in the same tree.
// So both ways have the same bits, where the products keep this promise (docs/determinism.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/fp8.h"
#include "autograd/tensor_axis.h"
#include "kernels/linear/factor.h"
#include "runtime/stream_log.h"

namespace tessera {

using SharedAxis = std::shared_ptr<TensorAxis>;

/// Rows [first, first + count) of all.
struct RowRange {
  std::int64_t first = 0, count = 0;
  /// These rows of x, which may be undefined.
  Tensor of(const Tensor& x) const { return x.defined() ? x.slice(first, first + count) : x; }
  Factor of(const Factor& x) const {
    return !x.defined() || x.size(0) == count ? x : Factor(of(x.values), x.inverse_scale);
  }
};

/// Whether rows travel while others are multiplied. Then each product with parameters of the axis is work by itself
/// in the log of a dry run.
inline bool travel_by_rank(const SharedAxis& axis) {
  return axis != nullptr && axis->exchange() == RowExchange::by_rank;
}
/// Logs a product of `rows` rows with so many elements of weights, if it is one of these.
void log_product(const SharedAxis& axis, Work::Kind kind, std::int64_t rows, std::int64_t elements,
                 bool in_8_bits = false);

/// The rows [N, C] of all ranks, from this one's. They travel from construction on. A collective.
class GatheredRows {
 public:
  /// `own` itself are the rows if it has all. Else it has no columns. It may be undefined: then there are none.
  GatheredRows(SharedAxis axis, const Factor& own) : GatheredRows(std::move(axis), own, {}) {}
  /// The same of fp8_factor(weight, role, ...). Rows of bf16 are rounded behind the gather, where the scope asks for it.
  GatheredRows(SharedAxis axis, const Factor& own, const JoinedParameters& weight, Fp8Role role)
      : GatheredRows(std::move(axis), own, Rounding{{weight, role}}) {}

  /// f(range, its rows) for ranges of the rows in the order of their arrival, each when it has arrived. This rank's come
  /// first. Called once.
  void for_each_range(const std::function<void(const RowRange&, const Factor&)>& f);
  /// [N, C], of which some rows may be under way, or are not rounded yet.
  const Factor& rows() const { return rows_; }
  /// The same when all have arrived.
  const Factor& whole();
  /// The same for the only product that reads columns: they are gone after it.
  Factor take_columns();
  /// The same, for the last use: the weight's gradient.
  Factor take();

 private:
  struct Arrival {
    RowRange range;
    Event event;
  };
  using Rounding = std::optional<std::pair<JoinedParameters, Fp8Role>>;
  GatheredRows(SharedAxis axis, const Factor& own, Rounding rounding);
  /// Rows, or columns, of gathered rows: rounded, or as they are.
  Factor rounded(const Factor& rows, Transpose columns) const;

  SharedAxis axis_;
  Factor rows_;
  Rounding rounding_;
  std::vector<Arrival> under_way_;
};

/// This rank's rows of the sum over ranks of sums [N, C] f32 (f64). They travel from construction on. A collective.
class ScatteredSums {
 public:
  /// form(sums [range.count, columns], range) writes this rank's sums for rows of all N = `rows`.
  using Form = std::function<void(const Tensor& sums, const RowRange& range)>;
  ScatteredSums(SharedAxis axis, std::int64_t rows, std::int64_t columns, DType dtype,
                const Form& form);

  /// residual + (sum + bias), in `dtype`. bias and residual may be undefined. Called once.
  Tensor rounded(const Tensor& bias, const Tensor& residual, DType dtype);

 private:
  SharedAxis axis_;
  Tensor sums_;  // together: for all rows
  // By rank: this rank's sums for others, and those for its rows by the rank that they come from.
  std::vector<Tensor> sent_, parts_;
  Event arrived_;
};

}  // namespace tessera
