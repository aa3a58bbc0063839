// Cross-entropy of logits with classes in equal parts, such as those of several ranks.
//
//   vocabulary_statistics    logits of some parts           ->  statistics [P, N, 3]
//   combine_statistics       statistics of several parts    ->  combined [N, 3]
//   vocabulary_loss          statistics of all classes      ->  loss [1]
//   vocabulary_gradient      the same, and logits           ->  dlogits
//
//   logits [N, V'] floating: P parts of V' / P neighbouring classes; column 0 is class `first_class`
//   targets of N rows, over all classes (kernels/cross_entropy/op.h)
//   statistics, combined, loss f32 (f64 for f64)
//
// The statistics of a part's row are
//
//   maximum         m = max over v of logits[n, v]
//   sum             sum over v of exp(logits[n, v] - m); 0 where m is minus infinity
//   target's logit  logits[n, target], or 0 if the target is not a class of the part; of several targets the
//                   weighted sum over those that are
//
// Parts a and b combine to
//
//   m = max(m_a, m_b),  sum_a exp(m_a - m) + sum_b exp(m_b - m),  the sum of the targets' logits
//
// in the balanced tree of kernels/tree_reduce/op.h. So a rank combines its parts, gathers the other ranks'
// results and combines these: the bits depend on the parts alone, not on the number of ranks, where both
// numbers are powers of two. This is the parallel form of the online softmax (Milakov, Gimelshein 2018);
// Megatron-LM divides the vocabulary likewise (Shoeybi et al. 2019, section 3).
//
// A target that is negative and not ignore_index raises Error that names its position: at once on the
// CPU, and on a GPU when the stream is next synchronized. A call does not know the number of all
// classes, so the caller sees to it that no target is too large.
#pragma once

#include "kernels/cross_entropy/op.h"
#include "kernels/op.h"

namespace tessera {

/// `parts` is P. A row's bits depend on its part's logits alone.
void vocabulary_statistics(Out statistics, const Tensor& logits, const Targets& targets,
                           std::int64_t first_class, std::int64_t parts,
                           int ignore_index = kIgnoreIndex);

/// combined [N, 3] from statistics [P, N, 3]; P is a power of two.
void combine_statistics(Out combined, const Tensor& statistics);

/// loss = loss_scale * sum over valid n of (m + log(sum) - target's logit), added in the order of
/// kernels/linear_cross_entropy; or a loss [N] of the rows, as there. `combined` [N, 3] has the statistics of
/// all classes. In a captured graph loss_scale is StepNumbers::loss_factor (runtime/step_values.h), here and
/// below.
void vocabulary_loss(Out loss, const Tensor& combined, const Targets& targets, double loss_scale,
                     int ignore_index = kIgnoreIndex);

/// dlogits[n, v] = loss_scale factors[n] (exp(logits[n, v] - m) / sum - (weight of v among the targets, or 0));
/// 0 in rows that are ignored. Undefined factors [N], of the dtype of `combined`, are 1. dlogits has logits'
/// dtype and may be logits, or is bf16 for f32 logits.
void vocabulary_gradient(Out dlogits, const Tensor& logits, const Tensor& combined,
                         const Targets& targets, std::int64_t first_class, double loss_scale,
                         int ignore_index = kIgnoreIndex, const Tensor& factors = Tensor());

namespace cpu {
decltype(tessera::vocabulary_statistics) vocabulary_statistics;
decltype(tessera::combine_statistics) combine_statistics;
decltype(tessera::vocabulary_loss) vocabulary_loss;
decltype(tessera::vocabulary_gradient) vocabulary_gradient;
}  // namespace cpu
namespace cuda {
decltype(tessera::vocabulary_statistics) vocabulary_statistics;
decltype(tessera::combine_statistics) combine_statistics;
decltype(tessera::vocabulary_loss) vocabulary_loss;
decltype(tessera::vocabulary_gradient) vocabulary_gradient;
}  // namespace cuda

}  // namespace tessera
