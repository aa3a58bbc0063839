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
// What is cut whole stays whole: a head of attention belongs to one rank.
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
};

/// The cut of a linear layer or an embedding, before it is known in which dimension.
struct LayerCut {
  Divided divided = Divided::nothing;
  std::int64_t pieces = 1;
  std::int64_t groups = 1;
  std::string_view piece = "channel";
};

/// The outputs are `pieces` heads, or channels; `groups` times, if several results lie side by side.
inline LayerCut by_outputs(std::int64_t pieces, std::string_view piece = "channel",
                           std::int64_t groups = 1) {
  return {Divided::outputs, pieces, groups, piece};
}
inline LayerCut by_inputs(std::int64_t pieces, std::string_view piece = "channel") {
  return {Divided::inputs, pieces, 1, piece};
}

}  // namespace tessera
