// The model of rungs 10 and 11, by hand: dense, with four blocks, and sums that have fixed parts.
//
//   x = embedding[ids]
//   per block:  x = x + attention(norm(x) qkv^T) out
//               x = x + swiglu(norm(x) gate_up^T) down
//   loss = cross-entropy of norm(x) head^T
//
// Tensor parallelism divides sums over channels among ranks, and context parallelism sums over tokens.
// Rounding depends on the order of a sum. So each such sum is formed of fixed parts for any number of
// ranks: a sum over channels of kSlices slices, and one over tokens of kPieces pieces. The parts are
// added in the tree of kernels/tree_reduce/op.h. A rank adds those that it has, and a reduce-scatter or an
// all-reduce goes on with the tree over ranks. The other rungs' model has only two heads, and adds each sum
// as a whole.
//
// Activations are f32 [pieces, R, channels]. A piece has kTokens / kPieces neighbouring tokens of each row of
// the batch; R counts them over all rows. The pieces come in the order of the tree: 0, 7, 1, 6, 2, 5, 3, 4. So
// equal shares of them have equally many keys to see. There are no positions but those of the causal mask.
#pragma once

#include "autograd/activations.h"
#include "autograd/operations.h"
#include "examples/ladder/ladder.h"

namespace tessera::ladder {

/// Slices of every matrix of a block, each with one head, and pieces of every row of tokens.
constexpr int kSlices = 4, kPieces = 8;
constexpr std::int64_t kHeadSize = kWidth / kSlices, kBlocks = 4;
/// Inner channels of the feed-forward layer, of a slice.
constexpr std::int64_t kInner = 32;

/// A weight that this rank has, and its gradient, which backward overwrites. All are used once in a step.
struct Weight {
  std::string name;
  Tensor value, gradient;
};

/// Matrices [slices, rows of a slice, columns]. The rows of qkv and gate_up are outputs, those of out and down
/// are inputs. A slice of qkv has the queries, keys and values of a head.
struct DenseBlock {
  Weight norm, qkv, out, mlp_norm, gate_up, down;
};

struct DenseModel {
  /// With the slices [first, last) of all blocks' matrices.
  DenseModel(int first, int last);

  /// All weights, for an optimizer.
  std::vector<ParameterShard> shards() const;
  /// The gradients of the weights that have slices, and of the others.
  std::vector<Tensor> sliced_gradients() const, whole_gradients() const;

  Weight embedding;  // [kVocabulary, kWidth]
  std::vector<DenseBlock> blocks;
  Weight norm, head;  // [kWidth], and one slice [1, kVocabulary, kWidth]
};

/// Ids i32 [pieces, R].
struct PieceTokens {
  Tensor inputs, targets;
};
/// The pieces [first, last) of a step's batch of so many rows, in the order of the tree.
PieceTokens tokens_of(int step, int rows, int first, int last);

// Operations on this rank's pieces and slices. The gradient of a weight is the sum over the pieces.
Variable embed(const Tensor& ids, const Weight& table);
Variable norm(const Variable& x, const Weight& weight);
/// A matrix that is cut by its results, Megatron's column-parallel layer: x [.., in] to [.., slices * out of a
/// slice]. Each result is a whole sum. The gradient of x is the sum over the slices of this rank.
Variable by_columns(const Variable& x, const Weight& weight);
/// A matrix that is cut by its inputs, the row-parallel layer: x [.., slices * in of a slice] to [.., out], the
/// sum over the slices of this rank. Gradients of x are whole sums.
Variable by_rows(const Variable& x, const Weight& weight);
/// The queries, keys and values (0, 1, 2) of qkv's result.
Variable third(const Variable& qkv, int which);
/// Causal attention of the queries [pieces, R, heads * kHeadSize], where the first piece is number `first` in the
/// tree's order, over the keys and values of all kPieces pieces. The gradients of k and v are sums over these queries.
Variable attend(const Variable& q, const Variable& k, const Variable& v, int first);
/// swiglu of each slice's gate and up: [.., slices * 2 kInner] to [.., slices * kInner].
Variable gated(const Variable& gate_up);
/// These tokens' share of the mean loss over a batch of losses.size(0) rows. Writes to `losses` each row's share of
/// that, the sum over these pieces.
Variable loss(const Variable& logits, const Tensor& targets, const Tensor& losses);

}  // namespace tessera::ladder
