#include "autograd/context_attention.h"

#include <optional>
#include <utility>

#include "autograd/activation_watch.h"
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

/// The heads with keys there at one time: all, or those that use one head of keys.
struct KeyGroup {
  std::int64_t number = 0, count = 1;

  Heads of(Heads x) const {
    x.heads /= count;
    x.offset += number * x.heads * x.head_size;
    return x;
  }
  /// The group's part of logsumexp [batch, heads, tokens], as memory to write: itself if the group has all
  /// heads. written() and read() copy it to its place and from there.
  Tensor part_of(const Tensor& logsumexp) const {
    if (count == 1) return logsumexp;
    return activation(logsumexp.shape().with(1, logsumexp.size(1) / count), logsumexp.dtype());
  }
  void written(const Tensor& part, const Tensor& logsumexp) const {
    if (count > 1) set_columns(columns_in(logsumexp), rows(part));
  }
  Tensor read(const Tensor& logsumexp) const {
    const Tensor part = part_of(logsumexp);
    if (count > 1) copy_columns(rows(part), columns_in(logsumexp));
    return part;
  }

 private:
  static Tensor rows(const Tensor& x) { return x.reshape({x.size(0), x.numel() / x.size(0)}); }
  Columns columns_in(const Tensor& logsumexp) const {
    const std::int64_t all = logsumexp.numel() / logsumexp.size(0);
    return {rows(logsumexp), number * all / count, all / count};
  }
};

/// f(group, its keys and values), one group after another. The keys of the next one travel meanwhile.
template <typename F>
void for_each_group(const ContextAxis& axis, const Heads& k, const Heads& v, const F& f) {
  KeyGroup group = {.count = axis.by_heads() ? k.heads : 1};
  std::optional<GatheredKeys> next(std::in_place, axis, group.of(k), group.of(v));
  while (next) {
    GatheredKeys here = *std::exchange(next, std::nullopt);
    here.finish();
    const KeyGroup behind = {group.number + 1, group.count};
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
  for_each_group(axis, k, v, [&](const KeyGroup& group, const GatheredKeys& row) {
    const Heads q_of = group.of(q), k_of = group.of(k), o_of = group.of(o);
    const Tensor sums = group.part_of(logsumexp);
    for (std::int64_t j = 0; j < axis.cut().pieces(); ++j) {
      const PieceCall piece(axis, j, q_of, k_of);
      const Heads queries = piece.of(q_of), keys = piece.visible(row.keys());
      attention_forward(piece.of(o_of), piece.of(sums), queries, keys, piece.visible(row.values()),
                        scale, piece.of(first_key));
      if (ActivationWatch* const watch = activation_watch()) {
        watch->attention(queries, keys, scale, piece.of(first_key), group.number * q_of.heads);
      }
    }
    group.written(sums, logsumexp);
  });
}

void context_attention_backward(const ContextAxis& axis, const Heads& dq, const Heads& dk,
                                const Heads& dv, const Heads& d_o, const Heads& q, const Heads& k,
                                const Heads& v, const Heads& o, const Tensor& logsumexp,
                                float scale, const Tensor& first_key) {
  for_each_group(axis, k, v, [&](const KeyGroup& group, const GatheredKeys& row) {
    backward_of_group(axis, row,
                      {group.of(dq), group.of(dk), group.of(dv), group.of(d_o), group.of(q),
                       group.of(k), group.of(o), group.read(logsumexp)},
                      scale, first_key);
  });
}

}  // namespace tessera
