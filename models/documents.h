// Documents that lie one after another in the rows of a batch.
//
//   ids        s a b c s d e s      s starts a document
//   starts     0 0 0 0 4 4 4 7
//   positions  0 1 2 3 0 1 2 0
//
// A token attends to its own document only, and its position is that in the document. So a document
// gives the same numbers in any place and with any neighbours.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/tensor.h"

namespace tessera {

/// For rows of `sequence_length` ids, i32 [rows, sequence_length] on the host: where in its row the
/// document of each token starts. Documents start at every `first_token` and at every row.
Tensor document_starts(std::span<const std::int32_t> ids, std::int64_t sequence_length,
                       std::int32_t first_token);

/// i32 of the starts' shape [B, T], on the current context's device: each token's position in its
/// document. Raises Error unless every start is the start before it or its token's own place.
Tensor document_positions(const Tensor& starts);

}  // namespace tessera
