// Products and sums that tensor-parallel ranks divide (autograd/tensor_axis.h).
//
// The operations call these in place of their kernels. Without an axis (null) they are the kernels.
//
// travelling_rows.h says how rows travel before and after products.
//
//                         rows                 product                  result
//   cut by outputs        whole_rows(x)        the rank's columns       all rows, own channels
//   cut by inputs         all, own channels    sum_over_inputs          own rows of the sum
//   backward of outputs   all, own channels    sum_over_outputs         own rows of the sum
//   backward of inputs    whole_rows(dy)       the rank's columns       all rows, own channels
#pragma once

#include <cstdint>

#include "autograd/joined_parameters.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations/travelling_rows.h"
#include "kernels/matmul/parts.h"

namespace tessera {

/// The axis of the parameters; null without one.
const SharedAxis& axis_of(const JoinedParameters& parameters);
Divided divided_by(const JoinedParameters& parameters);

/// The rows [N, C] of all ranks, from this one's: `own` itself if these are all. A collective.
Tensor whole_rows(const SharedAxis& axis, const Tensor& own);
/// This rank's rows of all, a view.
Tensor own_rows(const SharedAxis& axis, const Tensor& whole);
/// This rank's rows of the sum over ranks of their `sums` [N, C] f32 (f64). A collective.
Tensor scatter_sums(const SharedAxis& axis, const Tensor& sums);
/// This rank's rows of residual + (the sum over ranks of `sums` + bias), in `dtype`. bias and residual may be
/// undefined. A collective.
Tensor scatter_rounded(const SharedAxis& axis, const Tensor& sums, const Tensor& bias,
                       const Tensor& residual, DType dtype);
/// The columns [n, `columns`] of all ranks, from this one's [n, padded]. A collective.
Tensor whole_columns(const SharedAxis& axis, const Tensor& own, std::int64_t columns);
/// x = the sum over ranks of x, f32 or f64. A collective.
void sum_over_ranks(const SharedAxis& axis, const Tensor& x);
/// The same sum in `dtype`: x itself, or a copy.
Tensor whole_sum(const SharedAxis& axis, const Tensor& x, DType dtype);

/// The depths of part `part` of `parts` in a sum over `channels` channels, which are `groups` equal groups: an
/// equal share of every group.
DepthPart depths_of_part(std::int64_t channels, std::int64_t groups, std::int64_t part,
                         std::int64_t parts);

/// y [own rows, O] = residual + (x weight + bias), with the inputs I divided: x [N, I] and the weight have
/// the rank's. bias [O] and residual, of y's shape, may be undefined. A collective.
Tensor sum_over_inputs(const SharedAxis& axis, const Tensor& x, const Tensor& weight,
                       Transpose transpose_weight, const Tensor& bias, const Tensor& residual);
/// dx [own rows, I] = dy weight^T, with the outputs O divided: dy [N, O] and the weights have the rank's. A
/// collective.
ScatteredSums sum_over_outputs(const SharedAxis& axis, const Factor& dy,
                               const JoinedParameters& weight, Transpose transpose_weight);

/// Leaves of this rank's rows (context_axis.h): those of its tokens, or its share of them.
std::int64_t row_leaves(const SharedAxis& axis);

/// The gradient of a parameter that is a sum over rows, as a norm's weight is: a LeafSum over this rank's
/// rows and, where tensor ranks share rows out, the sum over these.
class RowSum {
 public:
  /// `accumulate`: how the gradient window is written.
  RowSum(const Parameter& parameter, Accumulate accumulate);

  const Tensor& next() { return sum_.next(); }
  Accumulate accumulate() const { return sum_.accumulate(); }
  void added() { sum_.added(); }
  /// All leaves have been added. A collective where ranks share out the rows.
  void finish() const;

 private:
  RowSum(const Parameter& parameter, Accumulate accumulate, Tensor own);

  Parameter parameter_;
  Accumulate accumulate_;
  Tensor own_;  // of this rank, before the sum over ranks; undefined without one
  LeafSum sum_;
};

/// Adds `sum` to a gradient window, or overwrites it. Elements, not shapes, are equal.
void accumulate(const Tensor& window, const Tensor& sum, Accumulate accumulate);

}  // namespace tessera
