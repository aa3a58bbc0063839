// Tensors rounded to 8 bits, with one scale each (docs/fp8.md).
//
//   fp8_round   y_i = (the number of the format nearest to scale x_i) / scale
//               largest = max(largest, |x_i|)
//   fp8_record  ends a step: its largest magnitudes enter the history
//   fp8_scales  the scales of the next step, from the history
//
//   x, y   bf16, equal shapes; y may be x
//   scale  [1] f32, a power of two; 0: y = x
//   largest  [1] f32, not negative, and NaN once a value was NaN
//
// A scale is a power of two, and bf16 has more mantissa bits than either format and a wider exponent. So y holds
// the 8-bit number over its scale exactly, and a product of such tensors has the terms of an 8-bit product.
// Numbers beyond the format's largest become the largest; infinity and NaN become NaN. Results have the same bits on
// every device, and `largest` for any order of calls.
#pragma once

#include <cstdint>

#include "kernels/op.h"
#include "runtime/enum_names.h"

namespace tessera {

/// 4 bits of exponent and 3 of mantissa, or 5 and 2 (grid.h).
enum class Fp8Format : std::uint8_t { e4m3, e5m2 };
template <>
inline constexpr EnumNames<Fp8Format> kEnumNames<Fp8Format> = {"8-bit format", {"e4m3", "e5m2"}};

/// The largest number of the format.
float largest_of(Fp8Format format);

void fp8_round(Out y, const Tensor& x, Fp8Format format, const Tensor& scale, Out largest);

/// For `count` tensors: `history` is [steps, count] f32, its latest step first; all others are [count] f32.
///
///   excess = largest scale / limit: above 1 if numbers of the step were cut to `limit`
///   history loses its oldest number and gains `largest`, unless that is infinite or NaN;  largest = 0
void fp8_record(Out history, Out largest, Out excess, const Tensor& scales, const Tensor& limits);
/// scale = the largest power of two with scale max(history) <= limit, at most 2^100; 0 if the history is all zeros.
void fp8_scales(Out scales, const Tensor& history, const Tensor& limits);

namespace cpu {
decltype(tessera::fp8_round) fp8_round;
decltype(tessera::fp8_record) fp8_record;
decltype(tessera::fp8_scales) fp8_scales;
}  // namespace cpu
namespace cuda {
decltype(tessera::fp8_round) fp8_round;
decltype(tessera::fp8_record) fp8_record;
decltype(tessera::fp8_scales) fp8_scales;
}  // namespace cuda

}  // namespace tessera
