// Tensors of 8-bit numbers, with one scale each or with scales of blocks (docs/fp8.md).
//
//   fp8_quantize   y_i = the number of y's format nearest to scale x_i;  yt [C, N] is y [N, C] transposed
//                  largest = max(largest, |x_i|)
//   fp8_expand     x_i = y_i inverse
//   fp8_transpose  yt [C, N] from y [N, C]
//   fp8_record     ends a step: its largest magnitudes enter the history
//   fp8_scales     the scales of the next step, from the history
//
//   fp8_quantize_blocks, fp8_expand_blocks   the same with a scale for each block of a matrix
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
#include "runtime/enum_names.h"

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

/// The numbers of a matrix that share a scale. Rows are read along the depth of a sum.
enum class Fp8Blocks : std::uint8_t {
  tensor,   // all
  vectors,  // 128 of a row
  squares   // 128 of each of 128 rows
};
template <>
inline constexpr EnumNames<Fp8Blocks> kEnumNames<Fp8Blocks> = {"blocks",
                                                               {"tensor", "vectors", "squares"}};
inline constexpr std::int64_t kFp8Block = 128;
/// The extents of the inverse scales of a matrix [rows, depth], in the order that cuBLASLt reads (gemm.h):
///
///   vectors   [ceil(depth / 128), rows]
///   squares   [ceil(rows / 128), ceil(depth / 128) rounded up to a multiple of 4], 1 behind the last square
Shape fp8_scales_shape(Fp8Blocks blocks, std::int64_t rows, std::int64_t depth);

/// y [N, C] and yt [C, N] from x [N, C] in bf16, each with its own blocks, in one pass over x. A block's scale is the
/// largest power of two that keeps its finite numbers within the format, at most 2^100, and 1 for zeros alone. y or yt
/// may be undefined, and with it its inverse scales. yt [L, C, N / L] has a matrix for each of L equal parts of
/// x's rows, and so has inverse_t: blocks of columns end with a part.
void fp8_quantize_blocks(Out y, Out inverse, Out yt, Out inverse_t, const Tensor& x,
                         Fp8Blocks blocks);
/// x [N, C] from y [N, C]. `transposed`: `inverse` is that of yt [C, N].
void fp8_expand_blocks(Out x, const Tensor& y, const Tensor& inverse, Fp8Blocks blocks,
                       Transpose transposed);

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
decltype(tessera::fp8_quantize_blocks) fp8_quantize_blocks;
decltype(tessera::fp8_expand_blocks) fp8_expand_blocks;
decltype(tessera::fp8_transpose) fp8_transpose;
decltype(tessera::fp8_record) fp8_record;
decltype(tessera::fp8_scales) fp8_scales;
}  // namespace cpu
namespace cuda {
decltype(tessera::fp8_quantize) fp8_quantize;
decltype(tessera::fp8_expand) fp8_expand;
decltype(tessera::fp8_quantize_blocks) fp8_quantize_blocks;
decltype(tessera::fp8_expand_blocks) fp8_expand_blocks;
decltype(tessera::fp8_transpose) fp8_transpose;
decltype(tessera::fp8_record) fp8_record;
decltype(tessera::fp8_scales) fp8_scales;
}  // namespace cuda

}  // namespace tessera
