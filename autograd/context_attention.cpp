#include "autograd/context_attention.h"

#include "autograd/activations.h"
#include "autograd/leaf_sum.h"
#include "kernels/cast/op.h"
#include "kernels/columns/op.h"

namespace tessera {
namespace {

/// Heads of a packed tensor [P B, t, ...] as columns of its rows.
Columns columns_of(const Heads& x) {
  return {as_rows(x.tensor), x.offset, x.heads * x.head_size};
}

/// One row's batch: B.
std::int64_t batch_of(const ContextAxis& axis, const Heads& x) {
  return x.batch / axis.cut().pieces();
}

/// This rank's part of a tensor with a part per rank.
Tensor own_part(const ContextAxis& axis, const Tensor& whole) {
  const std::int64_t rows = whole.size(0) / axis.cut().ranks, rank = axis.cut().rank;
  return whole.slice(rank * rows, (rank + 1) * rows);
}

/// The keys and values of all ranks, [B, T, kv_heads D] each.
struct GatheredKeys {
  Tensor keys, values;

  GatheredKeys(const ContextAxis& axis, const Heads& k, const Heads& v) {
    const std::int64_t rows = axis.cut().ranks * k.batch * k.tokens;
    const Shape by_ranks = {rows, k.heads * k.head_size};
    keys = activation(by_ranks, k.tensor.dtype());
    values = activation(by_ranks, v.tensor.dtype());
    copy_columns(own_part(axis, keys), columns_of(k));
    copy_columns(own_part(axis, values), columns_of(v));
    axis.all_gather({keys, values});
    const std::int64_t batch = batch_of(axis, k);
    const Shape natural = {batch, rows / batch, by_ranks[1]};
    keys = axis.natural(keys, batch).reshape(natural);
    values = axis.natural(values, batch).reshape(natural);
  }
};

/// The batch elements of one piece.
Heads piece_of(Heads x, std::int64_t j, std::int64_t batch) {
  x.offset += j * batch * x.batch_stride;
  x.batch = batch;
  return x;
}

/// Piece j of a call's queries, and the keys that they may see.
struct PieceCall {
  std::int64_t j, batch, keys;
  const Heads& kv;

  PieceCall(const ContextAxis& axis, std::int64_t piece, const Heads& q, const Heads& k)
      : j(piece),
        batch(batch_of(axis, q)),
        keys((axis.cut().place_of(piece) + 1) * q.tokens),
        kv(k) {}

  Heads of(const Heads& x) const { return piece_of(x, j, batch); }
  Tensor of(const Tensor& x) const {
    return x.defined() ? x.slice(j * batch, (j + 1) * batch) : Tensor();
  }
  /// Heads of a row's tensor [B, T, ...] from this channel on, up to the piece's end.
  Heads visible(const Tensor& row, std::int64_t first_channel = 0) const {
    return heads_of(row, first_channel, kv.heads, kv.head_size, keys);
  }
};

}  // namespace

void context_attention_forward(const ContextAxis& axis, const Heads& o, Out logsumexp,
                               const Heads& q, const Heads& k, const Heads& v, float scale,
                               const Tensor& first_key) {
  const GatheredKeys row(axis, k, v);
  for (std::int64_t j = 0; j < axis.cut().pieces(); ++j) {
    const PieceCall piece(axis, j, q, k);
    attention_forward(piece.of(o), piece.of(logsumexp), piece.of(q), piece.visible(row.keys),
                      piece.visible(row.values), scale, piece.of(first_key));
  }
}

void context_attention_backward(const ContextAxis& axis, const Heads& dq, const Heads& dk,
                                const Heads& dv, const Heads& d_o, const Heads& q, const Heads& k,
                                const Heads& v, const Heads& o, const Tensor& logsumexp,
                                float scale, const Tensor& first_key) {
  const GatheredKeys row(axis, k, v);
  const std::int64_t batch = row.keys.size(0), tokens = row.keys.size(1);
  const std::int64_t channels = row.keys.size(2);
  const DType dtype = q.tensor.dtype(), wide = statistics_dtype(dtype);
  // Gradients of keys, then of values, side by side.
  const Tensor total = activation({batch, tokens, 2 * channels}, wide);
  LeafSum sum(total, Accumulate::no, axis.cut().pieces());
  for (std::int64_t j = 0; j < axis.cut().pieces(); ++j) {
    const PieceCall piece(axis, j, q, k);
    const Tensor& target = sum.next();
    const Tensor gradients = dtype == wide ? target : activation(target.shape(), dtype);
    gradients.zero();  // the keys behind the piece
    attention_backward(piece.of(dq), piece.visible(gradients), piece.visible(gradients, channels),
                       piece.of(d_o), piece.of(q), piece.visible(row.keys),
                       piece.visible(row.values), piece.of(o), piece.of(logsumexp), scale,
                       piece.of(first_key));
    if (dtype != wide) cast(target, gradients);
    sum.added();
  }
  const Tensor own = activation({k.batch * k.tokens, 2 * channels}, wide);
  axis.reduce_scatter(own, axis.by_ranks(total, batch).reshape({batch * tokens, 2 * channels}));
  const Tensor half = activation({own.size(0), channels}, wide);
  copy_columns(half, first_half(own));
  set_columns(columns_of(dk), half);
  copy_columns(half, second_half(own));
  set_columns(columns_of(dv), half);
}

}  // namespace tessera
