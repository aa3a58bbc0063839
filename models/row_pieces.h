// The places of tokens in rows that ranks share out (autograd/context_axis.h).
//
// A rank's tokens are pieces [P B, t]. Their positions and first keys are those of the whole row.
#pragma once

#include <cstdint>

#include "autograd/context_axis.h"

namespace tessera {

/// i32 of the pieces' shape [P B, t], on the current context's device: each token's position in its
/// document. `starts`: for each token the place in the row where its document starts; undefined: each row is a
/// document. Raises Error unless a start is 0 to the token's own place.
Tensor positions_in_pieces(const Shape& pieces, const Tensor& starts, const TokenCut& cut);

/// As first_keys (kernels/attention/first_key.h), of pieces.
Tensor first_keys_in_pieces(const Tensor& starts, const TokenCut& cut, std::int64_t chunk,
                            std::int64_t window);

}  // namespace tessera
