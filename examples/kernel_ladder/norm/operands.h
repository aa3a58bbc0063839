// Rows for the rungs of RMS norms, and the errors of their results.
#pragma once

#include "examples/kernel_ladder/norm/rungs.h"
#include "runtime/tensor.h"

namespace tessera::kernel_ladder::norm {

/// Random x [N, C] and weight [C], with y and rstd.
struct Operands {
  Operands(std::int64_t N, std::int64_t C);

  Norm problem() const;

  Tensor x, weight, y, rstd;
};

/// The largest error of y and rstd next to the formula in f64, relative to each element, in units of
/// 2^-24. See most_error.
double largest_error(const Norm& p);

/// A bound for largest_error. The sum of C squares errs by at most C units: C roundings in any order,
/// and no term is negative (Higham 2002, section 4.2). The root halves that. Ten more are for the
/// mean, the root, the quotient and the products.
double most_error(const Norm& p);

}  // namespace tessera::kernel_ladder::norm
