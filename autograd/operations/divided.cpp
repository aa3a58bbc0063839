#include "autograd/operations/divided.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/activations.h"
#include "autograd/context_axis.h"
#include "autograd/fp8.h"
#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "kernels/matmul/parts.h"
#include "kernels/round_sum/op.h"
#include "runtime/category.h"

namespace tessera {
namespace {

/// The parts of a sum over the outputs of joined layers: of every layer, and group of its outputs, an
/// equal share.
std::vector<DepthPart> parts_of_outputs(const JoinedParameters& weight, Transpose transpose,
                                        std::int64_t count) {
  std::vector<DepthPart> parts(static_cast<std::size_t>(count));
  std::int64_t first = 0;
  for (const Parameter& layer : weight.parts()) {
    const std::int64_t outputs = layer.held_shape()[transpose == Transpose::yes ? 0 : 1];
    for (std::int64_t i = 0; i < count; ++i) {
      for (const DepthRange& range : depths_of_part(outputs, layer.cut().groups, i, count)) {
        parts[static_cast<std::size_t>(i)].push_back({first + range.first, range.count});
      }
    }
    first += outputs;
  }
  return parts;
}

}  // namespace

const SharedAxis& axis_of(const JoinedParameters& parameters) {
  return parameters.parts().front().tensor_axis();
}
Divided divided_by(const JoinedParameters& parameters) {
  return parameters.parts().front().cut().divided;
}

Tensor whole_rows(const SharedAxis& axis, const Tensor& own) {
  if (axis == nullptr || axis->ranks() == 1 || !axis->shares_rows()) return own;
  const Tensor whole = activation({axis->rows(), own.size(1)}, own.dtype());
  own_rows(axis, whole).copy_from(own);
  axis->all_gather(whole);
  return whole;
}

Tensor own_rows(const SharedAxis& axis, const Tensor& whole) {
  if (axis == nullptr) return whole;
  return whole.slice(axis->first_row(), axis->first_row() + axis->own_rows());
}

Tensor scatter_sums(const SharedAxis& axis, const Tensor& sums) {
  if (axis->ranks() == 1) return sums;
  if (!axis->shares_rows()) {
    axis->all_reduce(sums);
    return sums;
  }
  const Tensor own = activation({axis->own_rows(), sums.size(1)}, sums.dtype());
  axis->reduce_scatter(own, sums);
  return own;
}

Tensor scatter_rounded(const SharedAxis& axis, const Tensor& sums, const Tensor& bias,
                       const Tensor& residual, DType dtype) {
  const Tensor own = scatter_sums(axis, sums), y = activation(own.shape(), dtype);
  round_sum(y, own, bias, residual);
  return y;
}

Tensor whole_columns(const SharedAxis& axis, const Tensor& own, std::int64_t columns) {
  if (axis == nullptr || axis->ranks() == 1) return own;
  const std::int64_t rows = own.size(0), each = own.size(1), ranks = axis->ranks();
  const Tensor parts = activation({ranks * rows, each}, own.dtype());
  parts.slice(axis->rank() * rows, (axis->rank() + 1) * rows).copy_from(own);
  axis->all_gather(parts);
  const Tensor whole = activation({rows * columns}, own.dtype());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t rank = 0; rank < ranks && rank * each < columns; ++rank) {
      const std::int64_t count = std::min(each, columns - rank * each);
      const std::int64_t to = row * columns + rank * each;
      whole.slice(to, to + count)
          .copy_from(parts.slice(rank * rows + row, rank * rows + row + 1)
                         .reshape({each})
                         .slice(0, count));
    }
  }
  return whole.reshape({rows, columns});
}

void sum_over_ranks(const SharedAxis& axis, const Tensor& x) {
  if (axis->ranks() > 1) axis->all_reduce(x);
}

Tensor whole_sum(const SharedAxis& axis, const Tensor& x, DType dtype) {
  sum_over_ranks(axis, x);
  if (x.dtype() == dtype) return x;
  const Tensor sum = activation(x.shape(), dtype);
  cast(sum, x);
  return sum;
}

DepthPart depths_of_part(std::int64_t channels, std::int64_t groups, std::int64_t part,
                         std::int64_t parts) {
  const std::int64_t group = channels / groups, share = group / parts;
  DepthPart depths;
  for (std::int64_t g = 0; g < groups; ++g) depths.push_back({g * group + part * share, share});
  return depths;
}

Tensor sum_over_inputs(const SharedAxis& axis, const Tensor& x, const Tensor& weight,
                       Transpose transpose_weight, const Tensor& bias, const Tensor& residual) {
  const std::int64_t outputs = weight.size(transpose_weight == Transpose::yes ? 0 : 1);
  const std::vector<DepthPart> parts = equal_depth_parts(x.size(1), axis->own_parts());
  const auto form = [&](const Tensor& sums, const RowRange& range) {
    log_product(axis, Work::Kind::forward, range.count, weight.numel());
    matmul_in_parts(sums, range.of(x), weight, Transpose::no, transpose_weight, parts);
  };
  return ScatteredSums(axis, x.size(0), outputs, statistics_dtype(x.dtype()), form)
      .rounded(bias, residual, x.dtype());
}

ScatteredSums sum_over_outputs(const SharedAxis& axis, const Factor& dy,
                               const JoinedParameters& weight, Transpose transpose_weight) {
  const DType dtype = product_dtype(dy);
  const Tensor data = expanded(weight_factor(weight, dtype)), rows = expanded(dy);
  const std::int64_t inputs = data.size(transpose_weight == Transpose::yes ? 1 : 0);
  const std::vector<DepthPart> parts =
      parts_of_outputs(weight, transpose_weight, axis->own_parts());
  const auto form = [&](const Tensor& sums, const RowRange& range) {
    log_product(axis, Work::Kind::backward, range.count, data.numel());
    matmul_in_parts(sums, range.of(rows), data, Transpose::no, opposite(transpose_weight), parts);
  };
  return {axis, dy.size(0), inputs, statistics_dtype(dtype), form};
}

std::int64_t row_leaves(const SharedAxis& axis) {
  if (axis == nullptr || !axis->shares_rows()) return token_leaves();
  if (context_axis() == nullptr) return axis->own_parts();
  // Without a grid tensor ranks share out one leaf.
  return std::max(std::int64_t{1}, token_leaves() / axis->ranks());
}

namespace {

/// Memory for a rank's own sum, where ranks share out the rows.
Tensor own_sum(const Parameter& parameter) {
  const SharedAxis& axis = parameter.tensor_axis();
  if (!parameter.trainable() || axis == nullptr || axis->ranks() == 1 || !axis->shares_rows()) {
    return {};
  }
  return activation(parameter.shape(), statistics_dtype(parameter.gradient().dtype()));
}

Tensor window_of(const Parameter& parameter, const Tensor& own) {
  if (own.defined()) return own;
  return parameter.trainable() ? parameter.gradient() : Tensor();
}

}  // namespace

RowSum::RowSum(const Parameter& parameter, Accumulate accumulate)
    : RowSum(parameter, accumulate, own_sum(parameter)) {}

RowSum::RowSum(const Parameter& parameter, Accumulate accumulate, Tensor own)
    : parameter_(parameter),
      accumulate_(accumulate),
      own_(std::move(own)),
      sum_(window_of(parameter, own_), own_.defined() ? Accumulate::no : accumulate,
           row_leaves(parameter.tensor_axis())) {}

void RowSum::finish() const {
  if (!own_.defined()) return;
  sum_over_ranks(parameter_.tensor_axis(), own_);
  tessera::accumulate(parameter_.gradient(), own_, accumulate_);
}

void accumulate(const Tensor& window, const Tensor& sum, Accumulate accumulate) {
  const Tensor values = sum.reshape(window.shape());
  if (accumulate == Accumulate::yes) {
    add_all(std::vector{window}, std::vector{values});
  } else if (window.dtype() == values.dtype()) {
    window.copy_from(values);
  } else {
    cast(window, values);
  }
}

}  // namespace tessera
