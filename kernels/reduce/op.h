// Reductions of a whole tensor to one number.
//
//   max_abs         result [1] f32 (f64 for f64): max |x|, 0 if empty; NaN if any element is NaN
//   sum             result [1] f32 (f64 for f64): sum of x, in fixed chunks
//   sum_of_squares  result [2] i64: the sum of (x * 2^-exponent)^2 in fixed point,
//   order-independent
//
// sum_of_squares is how a gradient norm gets the same bits under every sharding. Every element's
// square is a non-negative multiple of 2^-60: with `exponent` such that |x| <= 2^exponent for all
// elements anywhere, q = floor((x * 2^-exponent)^2 * 2^60) fits an integer. Integers add
// associatively, so any partition of the elements over ranks, chunks and threads gives one result.
// The two words are sum(q >> 30) and sum(q & (2^30 - 1)): exact for fewer than 2^33 elements.
// For x of f32, bf16 or f16. An element that is not finite, or beyond 2^exponent, makes both words
// negative, and they stay so when accumulated into.
#pragma once

#include "kernels/op.h"

namespace tessera {

void max_abs(Out result, const Tensor& x);
void sum(Out result, const Tensor& x);
void sum_of_squares(Out result, const Tensor& x, int exponent, Accumulate accumulate);

namespace cpu {
decltype(tessera::max_abs) max_abs;
decltype(tessera::sum) sum;
void sum_of_squares(Out result, const Tensor& x, int exponent, Accumulate accumulate);
}  // namespace cpu
namespace cuda {
decltype(tessera::max_abs) max_abs;
decltype(tessera::sum) sum;
void sum_of_squares(Out result, const Tensor& x, int exponent, Accumulate accumulate);
}  // namespace cuda

}  // namespace tessera
