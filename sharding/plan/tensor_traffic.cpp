#include "sharding/plan/tensor_traffic.h"

#include "sharding/share.h"

namespace tessera {
namespace {

/// Counts the messages of one rank.
class MessageBytes {
 public:
  MessageBytes(const TensorTraffic& traffic, int ranks, int rank, bool shares_rows)
      : traffic_(traffic), ranks_(ranks), rank_(rank), shares_rows_(shares_rows) {}

  /// `count` gathers of the residual stream's rows.
  void gather(std::int64_t count) { gather(count, computed()); }
  void gather_factors(std::int64_t count) { gather(count, traffic_.fp8_rows ? 1 : computed()); }
  /// `count` sums of rows [N, C], scattered to the rows' ranks, in elements of `size` bytes.
  void scatter(std::int64_t count, std::int64_t size) {
    if (shares_rows_) {
      bytes_.added += count * size * rows_of_others();
    } else {
      for (std::int64_t i = 0; i < count; ++i) all_reduce(traffic_.rows * traffic_.width, size);
    }
  }
  /// `count` scattered sums of products, in f32. By rank they are messages, and added when all are there.
  void scatter_products(std::int64_t count) {
    if (shares_rows_ && traffic_.row_exchange == RowExchange::by_rank) {
      bytes_.copied += count * 4 * rows_of_others();
    } else {
      scatter(count, 4);
    }
  }
  void all_reduce(std::int64_t elements, std::int64_t size) {
    const std::int64_t own = share_of(elements, rank_, ranks_).count();
    bytes_.added += size * (elements - own);
    bytes_.copied += size * own * (ranks_ - 1);
  }
  /// In each of `passes` forward passes a rank gathers the heads of keys and values that it shares with
  /// others, and in backward it adds their gradients (autograd/operations/shared_pieces.h).
  void shared_heads(int passes, int own_parts) {
    const std::int64_t sharers = held_pieces(traffic_.keys, ranks_, own_parts).sharers;
    const std::int64_t others = (sharers - 1) * traffic_.rows * 2 * traffic_.head_size / sharers;
    bytes_.copied += passes * computed() * others;
    bytes_.added += 4 * others;
  }
  /// A pair of products: one cut by outputs, then one cut by inputs, `passes` times forward and once
  /// backward. The first may be `readers` products of one input.
  void pair(int passes, int readers) {
    gather_factors(readers * passes);
    scatter_products(passes);
    // Backward: the gradient of its result, its input again, and the input's gradient.
    gather_factors(1 + readers);
    scatter_products(readers);
  }
  /// A mixture. The router reads all rows, forward and for its weight's gradient.
  void mixture(int passes) {
    gather(passes + 1);
    gather(passes + (traffic_.experts.dispatches_again ? 2 : 1));
    scatter(passes + 1, 4);
    all_reduce(traffic_.rows * traffic_.experts.per_token, 4);  // the gradients of rows' weights
    if (traffic_.experts.shared) pair(passes, 1);
  }
  /// Numbers that every rank sends to every other.
  void exchange(std::int64_t numbers) { bytes_.copied += 4 * numbers * (ranks_ - 1); }
  /// The gradients of norms, which ranks form for their own rows.
  void norms(std::int64_t count) {
    if (!shares_rows_) return;
    for (std::int64_t i = 0; i < count * traffic_.norm_vectors; ++i) all_reduce(traffic_.width, 4);
  }

  std::int64_t computed() const { return static_cast<std::int64_t>(size_of(traffic_.dtype)); }
  const TensorTraffic::Bytes& bytes() const { return bytes_; }

 private:
  void gather(std::int64_t count, std::int64_t size) {
    if (shares_rows_) bytes_.copied += count * size * rows_of_others();
  }
  /// Elements of the rows that a gather sends, or a scatter: (t - 1) / t of all.
  std::int64_t rows_of_others() const {
    return traffic_.rows / ranks_ * (ranks_ - 1) * traffic_.width;
  }

  const TensorTraffic& traffic_;
  const int ranks_, rank_;
  const bool shares_rows_;
  TensorTraffic::Bytes bytes_;
};

}  // namespace

TensorTraffic::Bytes TensorTraffic::of_micro_batch(int ranks, int rank, int sum_parts,
                                                   int token_leaves) const {
  MessageBytes messages(*this, ranks, rank, rows % sum_parts == 0);
  const auto add_layer = [&](int passes, bool has_experts) {
    messages.pair(passes, attention_readers);
    has_experts ? messages.mixture(passes) : messages.pair(passes, 1);
    messages.norms(layer_norms);
    messages.shared_heads(passes, sum_parts / ranks);
    if (head_norms == 0) return;
    for (int leaf = 0; leaf < token_leaves; ++leaf) messages.all_reduce(head_norms, 4);
  };
  for (const int passes : forward_passes) add_layer(passes, false);
  for (const int passes : mixture_passes) add_layer(passes, true);
  if (embeds) {  // its rows, and their gradient for each table
    messages.scatter(1, messages.computed());
    messages.gather(learns_positions ? 2 : 1);
  }
  if (!has_head) return messages.bytes();
  // Its input, the statistics of every row, and the input's gradient.
  messages.gather(1);
  messages.exchange(head_runs * 3 * rows);
  messages.scatter(1, 4);
  messages.norms(1);
  return messages.bytes();
}

}  // namespace tessera
