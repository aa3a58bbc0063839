// Products and sums that tensor-parallel ranks divide (autograd/tensor_axis.h).
//
// The operations call these in place of their kernels. Without an axis (null) they are the kernels.
//
//                         rows                 product                  result
//   cut by outputs        whole_rows(x)        the rank's columns       all rows, own channels
//   cut by inputs         all, own channels    sum_over_inputs          own rows of the sum
//   backward of outputs   all, own channels    sum_over_outputs         own rows of the sum
//   backward of inputs    whole_rows(dy)       the rank's columns       all rows, own channels
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/joined_parameters.h"
#include "autograd/tensor_axis.h"
#include "kernels/op.h"

namespace tessera {

using Axis = std::shared_ptr<TensorAxis>;

/// The axis of the parameters; null without one.
const Axis& axis_of(const JoinedParameters& parameters);
Divided divided_by(const JoinedParameters& parameters);

/// The rows [N, C] of all ranks, from this one's: `own` itself if these are all. A collective.
Tensor whole_rows(const Axis& axis, const Tensor& own);
/// This rank's rows of all, a view.
Tensor own_rows(const Axis& axis, const Tensor& whole);
/// This rank's rows of the sum over ranks of their `sums` [N, C] f32 (f64). A collective.
Tensor scatter_sums(const Axis& axis, const Tensor& sums);
/// The columns [n, `columns`] of all ranks, from this one's [n, padded]. A collective.
Tensor whole_columns(const Axis& axis, const Tensor& own, std::int64_t columns);
/// x = the sum over ranks of x, f32 or f64. A collective.
void sum_over_ranks(const Axis& axis, const Tensor& x);

/// y [own rows, O] = residual + (x weight + bias), with the inputs I divided: x [N, I] and the weight have
/// the rank's. bias [O] and residual, of y's shape, may be undefined. A collective.
Tensor sum_over_inputs(const Axis& axis, const Tensor& x, const Tensor& weight,
                       Transpose transpose_weight, const Tensor& bias, const Tensor& residual);
/// dx [own rows, I] = received + dy weight^T, with the outputs O divided: dy [N, O] and the weights have the
/// rank's. `received`, of dx's shape, may be undefined. A collective.
Tensor sum_over_outputs(const Axis& axis, const Tensor& dy, const JoinedParameters& weight,
                        Transpose transpose_weight, const Tensor& received);

/// Sums of a parameter's gradient over this rank's rows, formed part by part and added in the tree.
///
///   RowSums sums(axis, rows, elements, dtype);
///   for (std::int64_t i = 0; i < sums.parts(); ++i) kernel(sums.part(i), rows of sums.first_row(i) ...);
///   sums.add_to(parameter)                                                        a collective
class RowSums {
 public:
  /// Parts of `rows` rows of this rank, each with a sum [elements].
  RowSums(const Axis& axis, std::int64_t rows, std::int64_t elements, DType dtype);

  std::int64_t parts() const { return parts_.size(0); }
  Tensor part(std::int64_t i) const { return parts_.slice(i, i + 1).reshape({parts_.size(1)}); }
  /// The rows of a part, of a tensor with all of this rank's.
  Tensor rows_of(const Tensor& rows, std::int64_t i) const;
  /// The sum over parts and ranks.
  Tensor total() const;

 private:
  const Axis& axis_;
  Tensor parts_;
};

/// Adds `sum` to a gradient window, or overwrites it. Elements, not shapes, are equal.
void accumulate(const Tensor& window, const Tensor& sum, Accumulate accumulate);

}  // namespace tessera
