// Pieces of a layer's result that several tensor-parallel ranks need: heads of keys and values.
//
// Eight ranks of a model with 2 heads of keys have 4 sharers of each head. A rank computes a quarter of the
// head's channels, so no weight is on two ranks. It then gathers the head from its sharers:
//
//   product     q q | k/4 v/4        2 heads of queries, a quarter of a head of keys and of values
//   result      q q | k v            after the gather
//
// In backward every sharer has the gradient that its queries give the head. Their sum, a quarter for each
// rank, goes on to the product.
//
// With a grid the gradients of a head are added in as many groups of its queries as there could be sharers.
// Fewer ranks make these groups with copies of the head (HeldPieces, autograd/cut.h). So the number of ranks
// does not change the bits.
#pragma once

#include "autograd/joined_parameters.h"
#include "autograd/variable.h"

namespace tessera {

/// The pieces of the result of the layer with this weight, on this rank.
HeldPieces held_pieces_of(const Parameter& weight);

/// y [..., own channels], the result of these layers, with the whole pieces of those that share them: each
/// has `pieces` x `copies` pieces side by side. y itself if there are none. The layers that share pieces are the
/// last ones. A collective.
Variable whole_pieces(Variable y, const JoinedParameters& weights);

}  // namespace tessera
