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
//
// `first_key` [B, Tq] (i32) hides keys at the other end: query i of batch element b sees keys
// first_key[b, i] .. Tkv - Tq + i. Numbers do not fall within a batch element, and no query's is
// beyond its own position. That is one number per token for packed documents, for Llama 4's chunks
// and for both (first_key.h). An undefined tensor hides nothing.
//
// No kernel has a second mask. Queries with the same first key are a *run*. Work is cut at the runs'
// borders, and tiles are counted from a run's first key:
//
//             keys   a a a a a b b b b
//   queries   a      D                     tiles of hidden scores are never visited, and a run's
//             a      # D                   tiles are those of its document alone. So packed
//             b                D           documents give the bits of each document alone: o,
//             b                # D         logsumexp, dq, dk and dv.
//
// On a GPU a call of one query and more than 128 keys splits the keys over thread blocks. Splits are counted
// from the query's first key, so its bits do not depend on the batch; they differ in the last places from
// those of the query among others.
//
// Runs of many queries are fast. Where every query has a first key of its own (a sliding window),
// the results are right but slow: each query is a tile.
#pragma once

#include <string_view>

#include "kernels/op.h"

namespace tessera {

struct Rotary;  // kernels/rope/op.h

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

/// Raises Error unless the heads are inside their tensors and k has keys for the queries q.
void check_queries_and_keys(std::string_view op, const Heads& q, const Heads& k);

/// Numbers in `first_key` that break its rules raise Error: on the CPU here, on a GPU at the next
/// synchronization (attention_backward relies on forward's check there).
///
/// With `rotary`, q and k are as many queries as keys that rope_forward rotated, and dq and dk become
/// the gradients before the rotation, as after rope_backward. On a GPU's tensor cores they are rotated
/// back in registers before they are stored, so they are rounded once and need no pass over memory.
///
/// `row_sums` is a place for partial sums of the gradients' rows: f32 [L, C] for dq, dk and dv that fill the C
/// channels of one tensor, in this order. The sum of the L rows is the sum over all tokens of the gradients as
/// they were rounded. Tensor cores leave it without another pass over memory. Other kernels leave an undefined
/// tensor, and so do all of them with first_key.
void attention_forward(const Heads& o, Out logsumexp, const Heads& q, const Heads& k,
                       const Heads& v, float scale, const Tensor& first_key = Tensor());
void attention_backward(const Heads& dq, const Heads& dk, const Heads& dv, const Heads& d_o,
                        const Heads& q, const Heads& k, const Heads& v, const Heads& o,
                        const Tensor& logsumexp, float scale, const Tensor& first_key = Tensor(),
                        const Rotary* rotary = nullptr, Tensor* row_sums = nullptr);

namespace cpu {
decltype(tessera::attention_forward) attention_forward;
decltype(tessera::attention_backward) attention_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::attention_forward) attention_forward;
decltype(tessera::attention_backward) attention_backward;
}  // namespace cuda

}  // namespace tessera
