// The language-model head and its loss in one operation, in chunks of tokens.
//
//   logits = x weight^T
//   loss = loss_scale * sum over valid n of cross_entropy(logits[n], targets[n])
//
//   x [N, C], weight [V, C] floating; targets of N rows (kernels/cross_entropy/op.h)
//   loss [1] f32 (f64 for f64), or [N]
//   dx [N, C] = d loss / d x;  dweight [V, C] (+)= d loss / d weight (may be f32 for 16-bit x)
//
// The logits of a whole batch are the largest tensor of a small language model (N * V). Here only
// `chunk` rows of them exist at a time, charged to `workspace`. On the CPU they are f32. Next to
// them are an f32 copy of an f16 weight or, for bf16, the rounded gradients of a chunk's logits, and
// the workspace of the products (matmul/op.h). On a GPU they have x's dtype, rounded once as logits and once as
// their gradients, in rows of V rounded up to a multiple of 64.
//
// Gradients are computed in the forward pass, while a chunk's logits exist, so that these are
// computed only once (the technique of Liger Kernel, Hsu et al. 2024, "FusedLinearCrossEntropy"):
// three matrix products per chunk. So the result must be the end of the graph, and the loss's
// factor, usually 1 / (number of valid targets), is an argument. Pass undefined dx and dweight to
// compute the loss alone.
//
// A loss [N] has each row's own: loss_scale * cross_entropy(logits[n], targets[n]), 0 where ignored. The
// gradients are then those of the sum over n of factors[n] loss[n], where `factors` [N] has the loss's dtype
// and may be undefined: 1. In a captured graph a loss must be [1].
#pragma once

#include "kernels/cross_entropy/op.h"
#include "kernels/op.h"

namespace tessera {

/// The rank's number of rows of logits at a time (options.h), by default kCrossEntropyChunk below.
inline constexpr std::int64_t kAutomaticChunk = 0;

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Targets& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index = kIgnoreIndex, std::int64_t chunk = kAutomaticChunk,
                          const Tensor& factors = Tensor());

namespace cpu {
/// Every chunk packs the weight for two products, and reads and writes dweight: 4 V C bytes each. With
/// chunks of 256 rows these cost 7 % of the head's time in f32 and 36 % in bf16.
inline constexpr std::int64_t kCrossEntropyChunk = 1024;
decltype(tessera::linear_cross_entropy) linear_cross_entropy;
}  // namespace cpu
namespace cuda {
/// Every chunk reads and writes dweight once, 8 V C bytes in f32. Its three products take 6 rows V C
/// operations, so from 1,500 rows on these bytes cost little (at 150 operations per byte).
inline constexpr std::int64_t kCrossEntropyChunk = 4096;
decltype(tessera::linear_cross_entropy) linear_cross_entropy;
}  // namespace cuda

}  // namespace tessera
