// Tensors of 8-bit numbers, with one scale each (docs/fp8.md).
//
//   fp8_quantize   y_i = the number of y's format nearest to scale x_i;  yt [C, N] is y [N, C] transposed
//                  largest = max(largest, |x_i|)
//   fp8_expand     x_i = y_i inverse
//   fp8_transpose  yt [C, N] from y [N, C]
//   fp8_record     ends a step: its largest magnitudes enter the history
//   fp8_scales     the scales of the next step, from the history
//
//   x  bf16, to fp8_quantize also f32, whose values are rounded to bf16 first;  y  e4m3 or e5m2
//   scale, inverse  [1] f32, powers of two; inverse = 1 / scale
//   largest         [1] f32, not negative, and NaN once a value was NaN
//
// A scale is a power of two, and bf16 has more mantissa bits than either format and a wider exponent. So
// fp8_expand is exact, and a product of expanded tensors has the terms of the 8-bit product.
// Numbers beyond the format's largest become the largest; infinity and NaN become NaN. Results have the same bits on
// every device, and `largest` for any order of calls.
#pragma once

#include "kernels/op.h"

namespace tessera {

/// The largest number of e4m3 or e5m2.
float largest_of(DType format);

/// The scale of a tensor's numbers, and the place of its largest magnitude.
struct Fp8Rounding {
  Tensor scale = {}, largest = {};
};

/// In one pass over x. y or yt may be undefined. With yt x is a matrix.
void fp8_quantize(Out y, Out yt, const Tensor& x, const Tensor& scale, Out largest);
void fp8_expand(Out x, const Tensor& y, const Tensor& inverse);
void fp8_transpose(Out yt, const Tensor& y);

/// For `count` tensors: `history` is [steps, count] f32, its latest step first; all others are [count] f32.
///
///   excess = largest scale / limit: above 1 if numbers of the step were cut to `limit`
///   history loses its oldest number and gains `largest`, unless that is 0, infinite or NaN;  largest = 0
void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits);
/// scale = the largest power of two with scale max(history) <= limit, at most 2^100;  inverse = 1 / scale.
/// A tensor's history has a number above 0.
void fp8_scales(Out scales, Out inverses, const Tensor& history, const Tensor& limits);

namespace cpu {
decltype(tessera::fp8_quantize) fp8_quantize;
decltype(tessera::fp8_expand) fp8_expand;
decltype(tessera::fp8_transpose) fp8_transpose;
decltype(tessera::fp8_record) fp8_record;
decltype(tessera::fp8_scales) fp8_scales;
}  // namespace cpu
namespace cuda {
decltype(tessera::fp8_quantize) fp8_quantize;
decltype(tessera::fp8_expand) fp8_expand;
decltype(tessera::fp8_transpose) fp8_transpose;
decltype(tessera::fp8_record) fp8_record;
decltype(tessera::fp8_scales) fp8_scales;
}  // namespace cuda

}  // namespace tessera
