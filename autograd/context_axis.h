// ContextAxis: the ranks that share out the tokens of every row (context parallelism).
//
// A row of T tokens is 2 G pieces. They are dealt from both ends, so that every part has as many scores
// of causal attention as the others: leaf i is the pieces i and 2 G - 1 - i. Of c ranks, rank r has
// the G / c neighbouring leaves from r G / c on. With G = 4 and c = 2:
//
//   piece   0   1   2   3   4   5   6   7          rank 0: leaves 0 and 1
//   leaf    0   1   2   3   3   2   1   0          rank 1: leaves 2 and 3
//
// A rank's tensors hold its pieces one after another, each with all rows of the batch: [P B, t], with
// P = 2 G / c pieces in the order of leaves and t = T / (2 G) tokens in a piece. So the tokens of a leaf
// are neighbouring rows. Most operations see rows and need to know no more. Attention needs the keys of
// all ranks (context_attention.h).
//
// A sum over tokens, as every gradient of a parameter is, is formed for each leaf alone, and the leaves
// are added in the tree of kernels/tree_reduce (leaf_sum.h). The sum over ranks continues this tree. So
// every c that divides G has the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace tessera {

/// The tokens that one rank has of every row.
struct TokenCut {
  /// c, and this rank's place among them.
  int ranks = 1, rank = 0;
  /// G / c: leaves of this rank.
  std::int64_t leaves = 1;

  /// P: pieces of this rank.
  std::int64_t pieces() const { return 2 * leaves; }
  /// 2 G.
  std::int64_t pieces_of_row() const { return pieces() * ranks; }
  /// The place in the row of piece j of `of_rank`.
  std::int64_t place_of(std::int64_t j, int of_rank) const {
    const std::int64_t leaf = of_rank * leaves + j / 2;
    return j % 2 == 0 ? leaf : pieces_of_row() - 1 - leaf;
  }
  std::int64_t place_of(std::int64_t j) const { return place_of(j, rank); }
};

/// This rank's tokens of whole rows [B, T] or [B, T, K]: [P B, t] or [P B, t, K]. T is a multiple of 2 G; else
/// raises Error.
Tensor cut_rows(const Tensor& rows, const TokenCut& cut);

/// A sharding strategy implements the exchange (sharding/strategy/context_exchange.h).
class ContextAxis {
 public:
  /// `by_heads`: attention asks for the keys of one head at a time.
  ContextAxis(const TokenCut& cut, bool by_heads) : cut_(cut), by_heads_(by_heads) {}
  virtual ~ContextAxis() = default;
  ContextAxis(const ContextAxis&) = delete;
  ContextAxis& operator=(const ContextAxis&) = delete;

  const TokenCut& cut() const { return cut_; }
  bool by_heads() const { return by_heads_; }

  /// A pass begins over pieces [P B, t] of `batch` rows.
  void begin(std::int64_t batch, std::int64_t piece_tokens) const {
    batch_ = batch, piece_tokens_ = piece_tokens;
  }
  std::int64_t piece_tokens() const { return piece_tokens_; }
  /// The place of one of this rank's tokens, numbered in [P B, t], among those of whole rows [B, T].
  std::int64_t place_of_token(std::int64_t token) const {
    const std::int64_t piece = token / piece_tokens_;
    const std::int64_t place = cut_.place_of(piece / batch_);
    return (piece % batch_ * cut_.pieces_of_row() + place) * piece_tokens_ + token % piece_tokens_;
  }

  /// Each tensor has a part per rank, of which this rank's is filled. Adds the other ranks'
  /// parts while computation goes on. The event is behind that. A collective.
  virtual Event start_gather(const std::vector<Tensor>& wholes) const = 0;
  /// `part` = the sum over ranks of this rank's part of their `whole`, f32, in the balanced tree. On
  /// the compute stream. A collective.
  virtual void reduce_scatter(const Tensor& part, const Tensor& whole) const = 0;

  // Rows of pieces [2 G B, t C] in two orders, for `batch` rows of tokens:
  //   by ranks   (rank, piece of the rank, row), as all_gather leaves them
  //   natural    (row, piece of the row): [B, T, C]
  Tensor natural(const Tensor& by_ranks, std::int64_t batch) const;
  Tensor by_ranks(const Tensor& natural, std::int64_t batch) const;

 private:
  /// i32 [2 G B]: the place by ranks of each natural one, and the reverse.
  struct Order {
    Tensor to_natural, to_ranks;
  };
  const Order& order_of(std::int64_t batch) const;

  TokenCut cut_;
  bool by_heads_;
  mutable std::int64_t batch_ = 1, piece_tokens_ = 1;
  mutable std::map<std::int64_t, Order> orders_;
};

/// The axis of the current context; null where ranks have whole rows.
const std::shared_ptr<const ContextAxis>& context_axis();
/// Leaves of this rank's tokens: 1 without an axis.
std::int64_t token_leaves();

/// Makes `axis`, which may be null, the current context's for the scope.
class ContextAxisScope {
 public:
  explicit ContextAxisScope(std::shared_ptr<const ContextAxis> axis);
  ~ContextAxisScope();
  ContextAxisScope(const ContextAxisScope&) = delete;
  ContextAxisScope& operator=(const ContextAxisScope&) = delete;

 private:
  std::shared_ptr<const ContextAxis> previous_;
};

}  // namespace tessera
