// The sum of a tensor.
#pragma once

#include "kernels/op.h"

namespace tessera {

/// result [1] f32 (f64 for f64) = the sum of x. The order of additions depends on x's length alone:
/// the same bits for any number of threads.
void sum(Out result, const Tensor& x);

namespace cpu {
decltype(tessera::sum) sum;
}  // namespace cpu
namespace cuda {
decltype(tessera::sum) sum;
}  // namespace cuda

}  // namespace tessera
