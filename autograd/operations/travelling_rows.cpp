#include "autograd/operations/travelling_rows.h"

#include <utility>

#include "autograd/activations.h"
#include "autograd/operations/divided.h"
#include "kernels/round_sum/op.h"
#include "kernels/tree_reduce/op.h"

namespace tessera {
namespace {

bool travels(const SharedAxis& axis) {
  return travel_by_rank(axis) && axis->shares_rows();
}

/// The number of the rank that is `distance` behind this one, around the ring.
int rank_behind(const TensorAxis& axis, int distance) {
  return (axis.rank() + distance + axis.ranks()) % axis.ranks();
}

RowRange rows_of_rank(const TensorAxis& axis, int rank) {
  return {axis.own_rows() * rank, axis.own_rows()};
}

}  // namespace

void log_product(const SharedAxis& axis, Work::Kind kind, std::int64_t rows, std::int64_t elements,
                 bool in_8_bits) {
  if (!travel_by_rank(axis)) return;
  const double amount = 2.0 * static_cast<double>(rows * elements);
  log_work({.kind = kind, .amount = amount, .in_8_bits = in_8_bits ? amount : 0.0});
}

GatheredRows::GatheredRows(SharedAxis axis, const Factor& own, Rounding rounding)
    : axis_(std::move(axis)), rows_(own), rounding_(std::move(rounding)) {
  if (own.is_fp8()) rounding_.reset();
  if (!own.defined()) return;
  if (!travels(axis_)) {
    rows_.values = whole_rows(axis_, own.values);
    return;
  }
  const Tensor rows = activation({axis_->rows(), own.size(1)}, own.values.dtype());
  rows_.values = rows;
  const Tensor sent = own_rows(axis_, rows);
  sent.copy_from(own.values);
  for (int distance = 1; distance < axis_->ranks(); ++distance) {
    const RowRange range = rows_of_rank(*axis_, rank_behind(*axis_, -distance));
    under_way_.push_back({range, axis_->shift(range.of(rows), sent, distance)});
  }
}

Factor GatheredRows::rounded(const Factor& rows, Transpose columns) const {
  if (!rounding_ || !rows.defined()) return rows;
  const auto& [weight, role] = *rounding_;
  return gathered_fp8_factor(weight, role, rows.values, columns);
}

void GatheredRows::for_each_range(const std::function<void(const RowRange&, const Factor&)>& f) {
  const auto call = [&](const RowRange& range) {
    f(range, rounded(range.of(rows_), Transpose::no));
  };
  if (under_way_.empty()) return call({0, rows_.size(0)});
  call(rows_of_rank(*axis_, axis_->rank()));
  for (const Arrival& arrival : std::exchange(under_way_, {})) {
    axis_->wait(arrival.event);
    call(arrival.range);
  }
}

const Factor& GatheredRows::whole() {
  if (!under_way_.empty()) axis_->wait(under_way_.back().event);
  under_way_.clear();
  return rows_;
}

Factor GatheredRows::take_columns() {
  Factor rows = rounded(whole(), Transpose::yes);
  rows_.columns = {};
  return rows;
}

Factor GatheredRows::take() {
  whole();
  return rounded(std::exchange(rows_, {}), Transpose::yes);
}

ScatteredSums::ScatteredSums(SharedAxis axis, std::int64_t rows, std::int64_t columns, DType dtype,
                             const Form& form)
    : axis_(std::move(axis)) {
  if (!travels(axis_)) {
    sums_ = activation({rows, columns}, dtype);
    form(sums_, {0, rows});
    return;
  }
  parts_.resize(static_cast<std::size_t>(axis_->ranks()));
  const auto sums_for = [&](int rank) {
    const RowRange range = rows_of_rank(*axis_, rank);
    const Tensor sums = activation({range.count, columns}, dtype);
    form(sums, range);
    return sums;
  };
  for (int distance = 1; distance < axis_->ranks(); ++distance) {
    sent_.push_back(sums_for(rank_behind(*axis_, distance)));
    const int source = rank_behind(*axis_, -distance);
    const Tensor& part = parts_[static_cast<std::size_t>(source)] = like(sent_.back());
    arrived_ = axis_->shift(part, sent_.back(), distance);
  }
  parts_[static_cast<std::size_t>(axis_->rank())] = sums_for(axis_->rank());
}

Tensor ScatteredSums::rounded(const Tensor& bias, const Tensor& residual, DType dtype) {
  if (parts_.empty()) return scatter_rounded(axis_, sums_, bias, residual, dtype);
  axis_->wait(arrived_);
  sent_.clear();
  const Tensor sum = parts_[static_cast<std::size_t>(axis_->rank())],
               y = activation(sum.shape(), dtype);
  log_memory(static_cast<double>(sum.bytes()) * (axis_->ranks() + 1));
  tree_reduce(sum, parts_, Reduction::sum);
  parts_.clear();
  round_sum(y, sum, bias, residual);
  return y;
}

}  // namespace tessera
