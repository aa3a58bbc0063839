// The language-model head and its loss in one operation, in chunks of tokens.
//
//   logits = x weight^T;  loss = loss_scale * sum over valid n of cross_entropy(logits[n],
//   targets[n])
//
//   x [N, C], weight [V, C] floating; targets [N] i32; loss [1] f32 (f64 for f64)
//   dx [N, C] = d loss / d x;  dweight [V, C] (+)= d loss / d weight (may be f32 beside 16-bit x)
//
// The logits of a whole batch are the largest tensor of a small language model (N * V); here only
// `chunk` rows of them ever exist, charged to `workspace`: on the CPU in f32, beside an f32 copy of
// a 16-bit weight; on a GPU in x's dtype, rounded once as logits and once as their gradients, in
// rows of V rounded up to a multiple of 64. Gradients are produced in the forward pass, while a
// chunk's logits are at hand, so that they need not be computed twice (the technique of Liger
// Kernel, Hsu et al. 2024, "FusedLinearCrossEntropy"): three matrix products per chunk. That is why
// the loss's factor, usually 1 / (number of valid targets), is an argument: the result must be the
// end of the graph. Pass undefined dx and dweight to compute the loss alone.
#pragma once

#include "kernels/cross_entropy/op.h"
#include "kernels/op.h"

namespace tessera {

/// As many rows of logits at a time as suit the device: see kCrossEntropyChunk below.
inline constexpr std::int64_t kAutomaticChunk = 0;

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Tensor& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index = kIgnoreIndex, std::int64_t chunk = kAutomaticChunk);

namespace cpu {
inline constexpr std::int64_t kCrossEntropyChunk = 256;
decltype(tessera::linear_cross_entropy) linear_cross_entropy;
}  // namespace cpu
namespace cuda {
/// Every chunk reads and writes dweight once, 8 V C bytes in f32. Beside the 6 rows V C operations
/// of its three products that is little from 1,500 rows on (at 150 operations per byte).
inline constexpr std::int64_t kCrossEntropyChunk = 4096;
decltype(tessera::linear_cross_entropy) linear_cross_entropy;
}  // namespace cuda

}  // namespace tessera
