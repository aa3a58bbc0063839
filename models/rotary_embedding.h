// RotaryEmbedding: the rotation of queries and keys, with a table that all layers share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "autograd/operations.h"
#include "models/rope_config.h"
#include "models/transformer_shape.h"

namespace tessera {

/// The positions of tokens, and the number of positions that a table for them must have; 0: up to
/// those of the tokens that follow `first`.
struct TokenPositions : RopePositions {
  std::int64_t end = 0;
  /// Tokens of the whole sequence, which decides the frequencies of some kinds of scaling (dynamic,
  /// longrope); 0: those that are rotated.
  std::int64_t length = 0;
};

class RotaryEmbedding {
 public:
  /// For a model with these sizes: its context is the most positions that the table will ever need.
  RotaryEmbedding(const RopeConfig& rope, const TransformerShape& shape, RopePairs pairs);

  /// The table of so many positions for heads with statistics of this dtype (kernels/op.h), in a
  /// sequence of so many tokens.
  using MakeTable =
      std::function<RopeTable(std::int64_t positions, DType dtype, std::int64_t length)>;
  /// With a table of another kind.
  RotaryEmbedding(MakeTable make_table, const TransformerShape& shape);

  /// x [B, T, heads * head_size], rotated by its tokens' positions. In place if x is a temporary.
  Variable operator()(Variable x, std::int64_t heads, const TokenPositions& positions) const;

  /// The same as an argument of attention, for x.
  Rotary of(const Variable& x, const TokenPositions& positions) const;

  /// Whether sequences of different lengths have different tables.
  bool depends_on_length() const { return deciding_length(scaling_, 1) > 0; }

 private:
  /// The table of at least `positions` positions for heads of `dtype`. It grows with the longest
  /// sequence, so that a long context costs no memory until it is used.
  const RopeTable& table(std::int64_t positions, DType dtype, std::int64_t length) const;

  MakeTable make_table_;
  std::int64_t head_size_;
  std::int64_t context_;
  RopeScaling scaling_;
  mutable std::map<std::int64_t, RopeTable> tables_;  // by deciding_length of their sequences
};

}  // namespace tessera
