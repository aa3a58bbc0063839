// Readings of a watched step (train.watch): one or two numbers about many values, in device memory.
//
//   raise_to_magnitude        largest = max(largest, |x_i|)
//   raise_to_attention_logit  largest[h] = max(largest[h], scale q_i k_j) over the queries i of head h and
//                             the keys j that i sees (kernels/attention/op.h)
//   add_router_entropy        sum[0] += the entropies of softmax(logits[n, :]) in units of 2^-24
//                             sum[1] += the number of rows n; rows with infinity or NaN do not count
//
//   largest [1], or [heads of queries], f32, not negative, and NaN once a value was NaN; sum [2] i64; other
//   tensors floating
//
// A reading has the same bits for any order of the calls, any cut of the values into calls, and any
// number of threads. So readings of ranks are combined by their maximum or sum.
#pragma once

#include "kernels/attention/op.h"
#include "kernels/op.h"

namespace tessera {

/// A unit of an entropy sum.
inline constexpr double kEntropyUnit = 0x1p-24;

void raise_to_magnitude(Out largest, const Tensor& x);
void raise_to_attention_logit(Out largest, const Heads& q, const Heads& k, float scale,
                              const Tensor& first_key = Tensor());
/// logits [N, E].
void add_router_entropy(Out sum, const Tensor& logits);

namespace cpu {
decltype(tessera::raise_to_magnitude) raise_to_magnitude;
decltype(tessera::raise_to_attention_logit) raise_to_attention_logit;
decltype(tessera::add_router_entropy) add_router_entropy;
}  // namespace cpu
namespace cuda {
decltype(tessera::raise_to_magnitude) raise_to_magnitude;
decltype(tessera::raise_to_attention_logit) raise_to_attention_logit;
decltype(tessera::add_router_entropy) add_router_entropy;
}  // namespace cuda

}  // namespace tessera
