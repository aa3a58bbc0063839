// The elementwise parts of Newton-Schulz iterations.
#pragma once

#include "kernels/op.h"

namespace tessera::newton_schulz_parts {

/// x = x / max(|x|, epsilon). Squares are summed in f64, so none overflows.
void normalize(Out x, double epsilon);
/// x = alpha x + beta sums, formed in f32 and rounded once. sums f32, of x's count.
void combine(Out x, double alpha, double beta, const Tensor& sums);

}  // namespace tessera::newton_schulz_parts

namespace tessera::cpu {
decltype(newton_schulz_parts::normalize) normalize;
decltype(newton_schulz_parts::combine) combine;
}  // namespace tessera::cpu
namespace tessera::cuda {
decltype(newton_schulz_parts::normalize) normalize;
decltype(newton_schulz_parts::combine) combine;
}  // namespace tessera::cuda
