// Queries and keys, each head normalized and rotated in one pass (QK-norm).
//
// (Henry et al. 2020, "Query-Key Normalization for Transformers"; in this form Qwen Team 2025, "Qwen3
// Technical Report".) Every head of queries and keys is a row of rms_norm, and is then rotated:
//
//   rstd = 1 / sqrt(sum(x^2) / D + epsilon);  y = rope(x * rstd * (offset + weight))
//
//   x       [B, T, C]: a token's packed heads of D channels, `heads` of queries, then `kv_heads` of
//           keys, and any others, such as values
//   y       [B, T, C'] with as many heads of queries and keys; it may be x
//   weight  [2 D]: D for the heads of queries, then D for those of keys
//   rstd    [B, T, heads + kv_heads] f32 (f64 for f64), saved for backward
//
// A normalized head is not rounded before it is rotated. Channels behind the keys are left alone.
//
// Backward takes the gradient before the rotation, as attention_backward leaves it. With xhat = x *
// rstd and g = dy * (offset + weight) of the head's kind:
//
//   dx = rstd * (g - xhat * sum(g * xhat) / D);  dweight (+)= sum over tokens and heads of dy * xhat
//
// dx holds dy when backward begins. With a group of the heads, backward is that of these heads alone: a
// caller may so add dweight up group by group. dweight may be f32 while activations have 16 bits. An undefined
// dweight is not computed. On a GPU heads have at most kMostChannels channels.
#pragma once

#include "kernels/op.h"
#include "kernels/rope/op.h"

namespace tessera {

/// Positions outside the table raise Error as those of rope_forward do.
void qk_norm_forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, const Rotary& rotary,
                     std::int64_t heads, std::int64_t kv_heads, float epsilon, float offset = 0.0f);
/// The `number`-th of `count` equal groups of neighbouring heads of queries, and of keys.
struct HeadGroup {
  std::int64_t number = 0, count = 1;
};

void qk_norm_backward(Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                      const Tensor& rstd, std::int64_t heads, std::int64_t kv_heads,
                      Accumulate accumulate_parameters, const HeadGroup& group = {},
                      float offset = 0.0f);

namespace cpu {
decltype(tessera::qk_norm_forward) qk_norm_forward;
decltype(tessera::qk_norm_backward) qk_norm_backward;
}  // namespace cpu
namespace cuda {
namespace qk_norm {
inline constexpr std::int64_t kMostChannels = 256;
}
decltype(tessera::qk_norm_forward) qk_norm_forward;
decltype(tessera::qk_norm_backward) qk_norm_backward;
}  // namespace cuda

}  // namespace tessera
