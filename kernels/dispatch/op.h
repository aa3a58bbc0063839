// Dispatch of tokens to their experts, and the way back.
//
// N tokens with k experts each are N k rows. Dispatched, the rows lie sorted by (expert, token), so
// that each expert's rows are neighbours, in the order of their tokens:
//
//   experts [N, k] i32      the experts of each token, from the router (router/op.h)
//   places [N, k] i32       places[n, s] = p: slot s of token n is dispatched row p
//   offsets [E + 1] i32     expert e has the dispatched rows [offsets[e], offsets[e + 1])
//   slots [N k] i32         slots[p] = n k + s: the reverse of places; may be undefined
//
// An expert outside [0, E) raises Error that names its position in `experts`: at once on the CPU, and
// on a GPU when the stream is next synchronized. places and offsets, not the host, tell the other
// functions where rows lie, so a GPU need not wait for the counts.
//
//   dispatch          y[p] = w[n, s] x[n]                 x [N, C] -> y [N k, C]
//   combine           y[n] = residual[n] + sum over s of w[n, s] x[p]
//                                                         x [N k, C] -> y [N, C]; y may be residual
//   weigh_backward    dx[p] = w[n, s] dy[p], dw[n, s] = sum over c of dy[p, c] x[p, c]
//                                                         [N k, C]; dx may be dy. From y[p] = w[n, s] x[p]
//
//   weights w [N, k]; undefined in dispatch and combine: 1
//   residual [N, C]; undefined: 0
//
// dispatch and combine are each other's backward pass: dx of dispatch is combine(dy), with the same
// weights, and the reverse.
//
// combine adds to the residual in the order of the slots. The router's slots are in ascending order of experts, the
// order in which Transformers adds experts. The sum is rounded once.
#pragma once

#include "kernels/op.h"

namespace tessera {

void dispatch_order(Out places, Out offsets, Out slots, const Tensor& experts);

void dispatch(Out y, const Tensor& x, const Tensor& places, const Tensor& weights = {});
void combine(Out y, const Tensor& x, const Tensor& places, const Tensor& weights = {},
             const Tensor& residual = {});
void weigh_backward(Out dx, Out dweights, const Tensor& dy, const Tensor& x, const Tensor& places,
                    const Tensor& weights);

namespace cpu {
decltype(tessera::dispatch_order) dispatch_order;
decltype(tessera::dispatch) dispatch;
decltype(tessera::combine) combine;
decltype(tessera::weigh_backward) weigh_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::dispatch_order) dispatch_order;
decltype(tessera::dispatch) dispatch;
decltype(tessera::combine) combine;
decltype(tessera::weigh_backward) weigh_backward;
}  // namespace cuda

}  // namespace tessera
