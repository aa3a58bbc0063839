// TensorAxis: the ranks that share out the channels of layers, their heads and the vocabulary.
//
// A sharding strategy implements it (sharding/strategy/tensor_ranks.h) and gives it to the parameters
// that the ranks share out, and to all others of the model. The operations ask their parameters for it
// (autograd/operations/tensor_parallel.h); the models know nothing of it.
//
// Between two products that are cut, rows of tokens are shared out too (Korthikanti et al. 2023,
// "sequence parallelism"): rank r of t has the r-th of t equal parts of the N rows. They are gathered
// before a product that is cut by outputs, and the sums behind one that is cut by inputs are scattered
// to them. If the rows are no multiple of sum_parts, every rank has all rows.
//
// A sum that ranks divide is formed as `sum_parts` parts, which are added in a binary tree
// (kernels/tree_reduce/op.h). Each rank forms sum_parts / t of them. So the number of ranks does not
// change the bits.
#pragma once

#include <cstdint>

#include "kernels/tree_reduce/op.h"
#include "runtime/enum_names.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace tessera {

/// How rows travel before and behind the products of layers that ranks share out.
///   together   those of all ranks, while computation waits
///   by_rank    those of one rank after another, while others are multiplied
enum class RowExchange { together, by_rank };

template <>
inline constexpr EnumNames<RowExchange> kEnumNames<RowExchange> = {"tensor exchange",
                                                                   {"together", "by_rank"}};

class TensorAxis {
 public:
  virtual ~TensorAxis() = default;

  /// t, and this rank's place among them.
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  /// Parts of all ranks together, and of this one.
  int sum_parts() const { return sum_parts_; }
  int own_parts() const { return sum_parts_ / ranks_; }

  /// A pass begins over `batch` rows of `tokens` tokens.
  void begin(std::int64_t batch, std::int64_t tokens) { batch_ = batch, tokens_ = tokens; }
  std::int64_t rows() const { return batch_ * tokens_; }
  /// [batch, tokens, channels].
  Shape shape_of_rows(std::int64_t channels) const { return {batch_, tokens_, channels}; }
  /// Whether the ranks share out the rows.
  bool shares_rows() const { return rows() % sum_parts_ == 0; }
  /// The rows of this rank, and the first of them.
  std::int64_t own_rows() const { return shares_rows() ? rows() / ranks_ : rows(); }
  std::int64_t first_row() const { return shares_rows() ? own_rows() * rank_ : 0; }
  RowExchange exchange() const { return exchange_; }

  // RowExchange::by_rank: messages while computation goes on.

  /// Begins to send `sent` to the rank that is `distance` behind this one, around the ring, and to receive
  /// `received` from the one as far before it, behind the work of the compute stream so far. Returns the point at
  /// which they have arrived. A collective.
  virtual Event shift(const Tensor& received, const Tensor& sent, int distance) = 0;
  /// Makes the compute stream wait for rows.
  virtual void wait(const Event& arrival) = 0;

  // Collectives on the compute stream, because the results are the next thing that computation needs.

  /// Fills `whole` [t parts] with the parts of all ranks; this one's is there.
  virtual void all_gather(const Tensor& whole) = 0;
  /// part = the sum over ranks of this rank's part of `whole`.
  virtual void reduce_scatter(const Tensor& part, const Tensor& whole) = 0;
  /// x = the sum, or maximum, over ranks of x.
  virtual void all_reduce(const Tensor& x) = 0;
  /// The axis of this rank and the neighbours that share a piece with it (cut.h): `count` ranks.
  virtual TensorAxis& sharers(std::int64_t count) = 0;

 protected:
  TensorAxis(int ranks, int rank, int sum_parts, RowExchange exchange)
      : ranks_(ranks), rank_(rank), sum_parts_(sum_parts), exchange_(exchange) {}

 private:
  const int ranks_, rank_, sum_parts_;
  const RowExchange exchange_;
  std::int64_t batch_ = 0, tokens_ = 0;
};

}  // namespace tessera
