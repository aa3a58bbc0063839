// Heads for the rungs of attention, and the errors of their results.
#pragma once

#include "examples/kernel_ladder/attention/rungs.h"
#include "runtime/tensor.h"

namespace tessera::kernel_ladder::attention {

/// Random q, k and v [H, T, D] rounded to `precision`, with o and room for a head's scores.
/// `sharpness` multiplies the scores: 1 is the usual scale D^(-1/2), under which random queries see
/// all keys nearly alike.
struct Operands {
  Operands(std::int64_t H, std::int64_t T, std::int64_t D, float sharpness = 1.0f,
           DType precision = DType::f32);

  Attention problem() const;

  Tensor q, k, v, o, scores;
  float scale;
};

/// The largest error of o next to the formula in f64. The unit is 2^-24 of the sum of an element's
/// absolute terms weight |v|.
double largest_error(const Attention& p);

/// A bound for largest_error. Let S be the largest sum of |scale q k| over the channels of a query
/// and a key. A score errs by (D + 1) S units, and its difference from a maximum by 2 S more (Higham
/// 2002, section 3.1). An exponential's relative error is its argument's error plus 2 units. It
/// enters a term and the sum of weights. Both sums have T terms, and at most T corrections of 3
/// units. The arguments of all corrections err by 2 S together. Four units are for the quotient.
/// Weights that are rounded to bf16 err by 2^16 units more; q, k and v are then in bf16 as well.
double most_error(const Attention& p, bool weights_in_bf16 = false);

}  // namespace tessera::kernel_ladder::attention
