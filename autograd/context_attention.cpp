#include "autograd/context_attention.h"

#include <optional>
#include <utility>

#include "autograd/activations.h"
#include "autograd/leaf_sum.h"
#include "kernels/cast/op.h"
#include "kernels/columns/op.h"
#include "runtime/context.h"

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

/// The keys and values of all ranks, [B, T, heads D] each. They travel from construction to finish().
class GatheredKeys {
 public:
  GatheredKeys(const ContextAxis& axis, const Heads& k, const Heads& v)
      : axis_(axis), batch_(batch_of(axis, k)) {
    const std::int64_t rows = axis.cut().ranks * k.batch * k.tokens;
    const Shape by_ranks = {rows, k.heads * k.head_size};
    keys_ = activation(by_ranks, k.tensor.dtype());
    values_ = activation(by_ranks, v.tensor.dtype());
    copy_columns(own_part(axis, keys_), columns_of(k));
    copy_columns(own_part(axis, values_), columns_of(v));
    gathered_ = axis.start_gather({keys_, values_});
  }

  void finish() {
    {
      const Span span("exposed communication");
      context().compute_stream().wait(gathered_);
    }
    const Shape natural = {batch_, keys_.size(0) / batch_, keys_.size(1)};
    keys_ = axis_.natural(keys_, batch_).reshape(natural);
    values_ = axis_.natural(values_, batch_).reshape(natural);
  }
  const Tensor& keys() const { return keys_; }
  const Tensor& values() const { return values_; }

 private:
  const ContextAxis& axis_;
  std::int64_t batch_;
  Tensor keys_, values_;
  Event gathered_;
};

/// The heads whose keys are there at one time: all, or those that use one head of keys.
struct HeadGroups {
  std::int64_t number = 0, count = 1;

  Heads of(Heads x) const {
    x.heads /= count;
    x.offset += number * x.heads * x.head_size;
    return x;
  }
  /// The group's columns of logsumexp [batch, heads, tokens].
  Columns of(const Tensor& logsumexp) const {
    const std::int64_t batch = logsumexp.size(0), all = logsumexp.numel() / batch;
    return {logsumexp.reshape({batch, all}), number * all / count, all / count};
  }
  Shape shape_of(const Tensor& logsumexp) const {
    return logsumexp.shape().with(1, logsumexp.size(1) / count);
  }
};

/// f(group, its keys and values), one group after another. The keys of the next one travel meanwhile.
template <typename F>
void for_each_group(const ContextAxis& axis, const Heads& k, const Heads& v, const F& f) {
  HeadGroups group = {.count = axis.by_heads() ? k.heads : 1};
  std::optional<GatheredKeys> next(std::in_place, axis, group.of(k), group.of(v));
  while (next) {
    GatheredKeys here = *std::exchange(next, std::nullopt);
    here.finish();
    const HeadGroups behind = {group.number + 1, group.count};
    if (behind.number < group.count) next.emplace(axis, behind.of(k), behind.of(v));
    f(group, here);
    group = behind;
  }
}

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

/// The arguments of a backward pass over a group of heads.
struct GroupHeads {
  Heads dq, dk, dv, d_o, q, k, o;
  Tensor logsumexp;
};

void backward_of_group(const ContextAxis& axis, const GatheredKeys& row, const GroupHeads& x,
                       float scale, const Tensor& first_key) {
  const std::int64_t batch = row.keys().size(0), tokens = row.keys().size(1);
  const std::int64_t channels = row.keys().size(2);
  const DType dtype = x.q.tensor.dtype(), wide = statistics_dtype(dtype);
  // Gradients of keys, then of values, side by side.
  const Tensor total = activation({batch, tokens, 2 * channels}, wide);
  LeafSum sum(total, Accumulate::no, axis.cut().pieces());
  for (std::int64_t j = 0; j < axis.cut().pieces(); ++j) {
    const PieceCall piece(axis, j, x.q, x.k);
    const Tensor& target = sum.next();
    const Tensor gradients = dtype == wide ? target : activation(target.shape(), dtype);
    gradients.zero();  // the keys behind the piece
    attention_backward(piece.of(x.dq), piece.visible(gradients), piece.visible(gradients, channels),
                       piece.of(x.d_o), piece.of(x.q), piece.visible(row.keys()),
                       piece.visible(row.values()), piece.of(x.o), piece.of(x.logsumexp), scale,
                       piece.of(first_key));
    if (dtype != wide) cast(target, gradients);
    sum.added();
  }
  const Tensor own = activation({x.k.batch * x.k.tokens, 2 * channels}, wide);
  axis.reduce_scatter(own, axis.by_ranks(total, batch).reshape({batch * tokens, 2 * channels}));
  const Tensor half = activation({own.size(0), channels}, wide);
  copy_columns(half, first_half(own));
  set_columns(columns_of(x.dk), half);
  copy_columns(half, second_half(own));
  set_columns(columns_of(x.dv), half);
}

}  // namespace

void context_attention_forward(const ContextAxis& axis, const Heads& o, Out logsumexp,
                               const Heads& q, const Heads& k, const Heads& v, float scale,
                               const Tensor& first_key) {
  for_each_group(axis, k, v, [&](const HeadGroups& group, const GatheredKeys& row) {
    const Heads q_of = group.of(q), k_of = group.of(k), o_of = group.of(o);
    const bool all = group.count == 1;
    const Tensor sums = all ? logsumexp : activation(group.shape_of(logsumexp), logsumexp.dtype());
    for (std::int64_t j = 0; j < axis.cut().pieces(); ++j) {
      const PieceCall piece(axis, j, q_of, k_of);
      attention_forward(piece.of(o_of), piece.of(sums), piece.of(q_of), piece.visible(row.keys()),
                        piece.visible(row.values()), scale, piece.of(first_key));
    }
    if (!all)
      set_columns(group.of(logsumexp), sums.reshape({sums.size(0), sums.numel() / sums.size(0)}));
  });
}

void context_attention_backward(const ContextAxis& axis, const Heads& dq, const Heads& dk,
                                const Heads& dv, const Heads& d_o, const Heads& q, const Heads& k,
                                const Heads& v, const Heads& o, const Tensor& logsumexp,
                                float scale, const Tensor& first_key) {
  for_each_group(axis, k, v, [&](const HeadGroups& group, const GatheredKeys& row) {
    const Tensor sums = activation(group.shape_of(logsumexp), logsumexp.dtype());
    copy_columns(sums.reshape({sums.size(0), sums.numel() / sums.size(0)}), group.of(logsumexp));
    backward_of_group(axis, row,
                      {group.of(dq), group.of(dk), group.of(dv), group.of(d_o), group.of(q),
                       group.of(k), group.of(o), sums},
                      scale, first_key);
  });
}

}  // namespace tessera
