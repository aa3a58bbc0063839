// Cut: how tensor-parallel ranks may share out the elements of a parameter.
//
// A layer says which part a dimension plays, and knows nothing of ranks (Shoeybi et al. 2019,
// "Megatron-LM"). In y = x W the columns of W are its outputs and its rows are its inputs. Ranks that
// share out the outputs each compute some channels of y from all of x. Ranks that share out the inputs
// each have some channels of x, and y is the sum of their products. So a layer that is cut by outputs is
// followed by one that is cut by inputs:
//
//              rank 0   rank 1                     rank 0 | W W W W
//         x  [  W W   |  W W  ]   = h_0 | h_1  ->         |--------    y = h_0 W_0 + h_1 W_1
//            [  W W   |  W W  ]                    rank 1 | W W W W
//
// A part that is cut whole stays whole: a head of attention belongs to one rank. There may be more ranks than
// heads of keys. Each rank then computes a share of a head's channels, and gets the rest of them from the
// ranks that share the head (autograd/operations/shared_pieces.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class Divided {
  nothing,     // every rank has the whole parameter
  outputs,     // of the layer
  inputs,      // of the layer
  vocabulary,  // the rows of a table with one row for each token
};

struct Cut {
  Divided divided = Divided::nothing;
  /// The dimension, seen as [groups, pieces, rest]. A rank has neighbouring pieces of every group.
  int dimension = 0;
  std::int64_t groups = 1, pieces = 1;
  /// The name of a piece, for messages: "head", "channel".
  std::string_view piece = "channel";
  /// The pieces of another layer that use one of these: heads of queries for a head of keys. So many ranks
  /// may share a piece.
  std::int64_t uses = 1;
};

/// The pieces of a layer's result that a tensor-parallel rank has.
struct HeldPieces {
  /// Pieces of the layer.
  std::int64_t pieces = 1;
  /// Ranks that have the same piece. Each computes an equal share of its channels.
  std::int64_t sharers = 1;
  /// Copies of each piece, for equal groups of its uses. The gradient of a piece is the sum of those of its
  /// copies and sharers. With a grid their product is the same for any number of ranks, and so are the bits.
  std::int64_t copies = 1;
};
/// The pieces of one of `ranks` ranks, which forms `own_parts` parts of a divided sum. check_cut() has
/// held.
HeldPieces held_pieces(const Cut& cut, std::int64_t ranks, std::int64_t own_parts);

/// The cut of a linear layer or an embedding, before it is known in which dimension.
struct LayerCut {
  Divided divided = Divided::nothing;
  std::int64_t pieces = 1;
  std::int64_t groups = 1;
  std::string_view piece = "channel";
  std::int64_t uses = 1;
};

/// The outputs are `pieces` heads, or channels; `groups` times, if several results lie side by side.
inline LayerCut by_outputs(std::int64_t pieces, std::string_view piece = "channel",
                           std::int64_t groups = 1) {
  return {Divided::outputs, pieces, groups, piece};
}
/// The same for pieces that ranks may share: each has `uses` in another layer.
inline LayerCut by_shared_outputs(std::int64_t pieces, std::int64_t uses, std::string_view piece) {
  return {Divided::outputs, pieces, 1, piece, uses};
}
inline LayerCut by_inputs(std::int64_t pieces, std::string_view piece = "channel") {
  return {Divided::inputs, pieces, 1, piece};
}

}  // namespace tessera
