// Rows for the rungs of softmaxes, and the errors of their results.
#pragma once

#include "examples/kernel_ladder/softmax/rungs.h"
#include "runtime/tensor.h"

namespace tessera::kernel_ladder::softmax {

/// Random logits x [N, C] between -10 and 10, random targets [N], with y and losses.
struct Operands {
  Operands(std::int64_t N, std::int64_t C);

  Softmax problem() const;

  Tensor x, target, y, loss;
};

/// The largest error next to the formula in f64, in units of 2^-24: of exp(-loss), which is the
/// probability of the target, and with `has_y` of y, each relative to the exact probability.
double largest_error(const Softmax& p, bool has_y);

/// A bound for largest_error. The sum of C exponentials errs by C units, for no term is negative
/// (Higham 2002, section 4.2). The rounding of an argument of size A changes its exponential by A
/// units, and A is at most 20 here: 20 for a term, 20 for all corrections of the sum together, 20
/// for a probability and 20 for a loss. A correction adds 3 units, one for each rung's block at
/// most. Ten more are for the exponentials, the quotient and the logarithm.
double most_error(const Softmax& p);

}  // namespace tessera::kernel_ladder::softmax
