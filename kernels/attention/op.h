// Scaled dot-product attention with a causal mask and grouped heads.
//
//   S = scale * Q K^T;  P = softmax(S + mask);  O = P V         per batch element and query head
//
// Query head h reads key/value head h / (heads / kv_heads) (grouped-query attention, Ainslie et al.
// 2023). With Tq queries and Tkv keys, query i sees keys 0 .. Tkv - Tq + i: queries are the *last*
// Tq positions, which is plain causal attention when Tq = Tkv and decoding with a cache when not.
//
// P never exists in memory: keys are visited in tiles with a running maximum and sum (Milakov,
// Gimelshein 2018; Dao et al. 2022), so memory grows with T, not T^2. Saved for backward: O and
// logsumexp [B, heads, Tq] (natural logarithm; f32, or f64 for f64). Backward recomputes P tile by
// tile (Dao 2023, algorithm 2); with D = sum(dO * O) per query:
//   dV = P^T dO;  dS = P * (dO V^T - D);  dQ = scale * dS K;  dK = scale * dS^T Q
// Deterministic: every output element is summed by one thread in a fixed order.
#pragma once

#include "kernels/op.h"

namespace tessera {

/// Heads inside a packed tensor: element (b, t, h, d) lies at
/// offset + b * batch_stride + t * token_stride + h * head_size + d   (in elements).
struct Heads {
  Tensor tensor;
  std::int64_t offset = 0;
  std::int64_t batch_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
};

/// `heads` heads of `head_size` starting at channel `first_channel` of a [B, T, C] tensor.
/// With `tokens` >= 0 only the first `tokens` of the T positions count (a partly filled cache).
Heads heads_of(const Tensor& tensor, std::int64_t first_channel, std::int64_t heads,
               std::int64_t head_size, std::int64_t tokens = -1);

void attention_forward(const Heads& o, Out logsumexp, const Heads& q, const Heads& k,
                       const Heads& v, float scale);
void attention_backward(const Heads& dq, const Heads& dk, const Heads& dv, const Heads& d_o,
                        const Heads& q, const Heads& k, const Heads& v, const Heads& o,
                        const Tensor& logsumexp, float scale);

namespace cpu {
decltype(tessera::attention_forward) attention_forward;
decltype(tessera::attention_backward) attention_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::attention_forward) attention_forward;
decltype(tessera::attention_backward) attention_backward;
}  // namespace cuda

}  // namespace tessera
