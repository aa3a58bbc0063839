// Attention of a rank's tokens over the keys of all ranks of a row (context_axis.h).
//
// The tensors hold pieces: q, k, v and o have P B batch elements of t tokens. Keys and values of all ranks
// are gathered and put in the row's order, [B, T, kv_heads D]. The queries of a piece are then the last of
// the keys up to the piece's end, as those of generation are the last of a cache. So each query visits the
// keys that it visits in a whole row, in tiles from the same first key, and has the same bits.
//
// By heads (ContextAxis::by_heads), a rank has the keys and values of one head of keys at a time, and those
// of the next one travel under the computation. A head's bits do not depend on the others.
//
// Backward gathers once more. Keys and values kept from forward would be as large as those of c ranks in
// every layer, and the ranks are there to divide a row's memory. The gradients of keys and values are
// formed for each piece of queries, added in f32 in the tree of leaves, and over ranks in the same tree by
// reduce_scatter.
#pragma once

#include "autograd/context_axis.h"
#include "kernels/attention/op.h"

namespace tessera {

/// As attention_forward and attention_backward (kernels/attention/op.h), with their arguments.
/// `first_key` i32 [P B, t] counts from the row's first token. Collectives.
void context_attention_forward(const ContextAxis& axis, const Heads& o, Out logsumexp,
                               const Heads& q, const Heads& k, const Heads& v, float scale,
                               const Tensor& first_key);
void context_attention_backward(const ContextAxis& axis, const Heads& dq, const Heads& dk,
                                const Heads& dv, const Heads& d_o, const Heads& q, const Heads& k,
                                const Heads& v, const Heads& o, const Tensor& logsumexp,
                                float scale, const Tensor& first_key);

}  // namespace tessera
