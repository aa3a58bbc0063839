// Sums over the channels inside experts that tensor ranks divide (autograd/tensor_axis.h).
//
// Every rank dispatches the same rows. Its experts have some of the channels, so its results are parts of
// sums. A part's k rows per token are combined first, and then parts are added in the tree:
//
//   rows of a part [N k, C]  --combine-->  [N, C]  --tree over own parts-->  --scatter_sums-->  own rows
//
// combine is linear in the parts, so this order needs the fewest bytes between ranks: a token's row, not
// its k dispatched rows. One rank adds in the same order, so the number of ranks changes no bit.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/op.h"
#include "runtime/tensor.h"

namespace tessera {

/// The rows [N k, C] f32 (f64) of one of this rank's parts, back at their tokens. It may be a collective.
using RowsOfPart = std::function<Tensor(std::int64_t part)>;

/// sums [N, C] = the sum over `parts` parts of combine(rows, places, weights). f32 (f64); weights [N, k] may
/// have another dtype, or be undefined.
void combine_parts(Out sums, std::int64_t parts, const RowsOfPart& rows, const Tensor& places,
                   const Tensor& weights);

/// Backward of combine_parts's rows w x, for x [N, C] and weights w [N, k]: the sums over parts of
///
///   dx [N, C] = sum over slots of w drows,    dweights [N, k] = sum over c of drows x
///
/// for `rows` drows. dx and dweights are f32 (f64).
void weigh_parts(Out dx, Out dweights, std::int64_t parts, const RowsOfPart& rows, const Tensor& x,
                 const Tensor& places, const Tensor& weights);

/// The sum of x [S, N, k] over its first dimension, in the tree.
Tensor sum_of_parts(const Tensor& x);

}  // namespace tessera
