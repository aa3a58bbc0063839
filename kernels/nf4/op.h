// NF4: matrices of 4 bits an element (Dettmers et al. 2023, "QLoRA", section 3).
//
// A block is 64 neighbours of a row; the last one of a row may be shorter. Each element of a block is one of
// 16 values, quantiles of the normal distribution, times the block's scale, its largest magnitude:
//
//   w = kNf4Values[code] scale
//
// The scales are quantized as well ("double quantization"). All scales of a matrix have one mean. Those of a
// group, 256 neighbouring blocks of the matrix, have one range, the largest distance from the mean:
//
//   scale = kNf4ScaleValues[code] range + mean
//
// If rows have a multiple of 64 elements, codes and values are those of bitsandbytes (quant_type nf4 with
// compress_statistics).
//
// A row holds all that it needs, so ranks may hold any rows of a matrix:
//
//   32 bytes a block   the elements' codes, two a byte, the first in the upper four bits
//    1 byte a block    the scales' codes
//    4 bytes           the mean, f32, at a multiple of 4 bytes
//    4 bytes each      the ranges, f32, of the groups that the row's blocks belong to
//                      zeros up to a multiple of 16 bytes
//
// Rows of 4,096 elements take 4.16 bits an element.
#pragma once

#include "kernels/op.h"

namespace tessera {

/// The shape of the packed tensor: [..., R, C] becomes [..., R, bytes of a row].
Shape nf4_packed_shape(const Shape& shape);

/// y [..., R, C], floating, from packed u8 of nf4_packed_shape(y.shape()): whole matrices [R, C].
/// They begin at a multiple of 16 bytes. Each value is computed in f32 and rounded to y's dtype. The host packs
/// (pack.h).
void nf4_unpack(Out y, const Tensor& packed);

namespace cpu {
decltype(tessera::nf4_unpack) nf4_unpack;
}
namespace cuda {
decltype(tessera::nf4_unpack) nf4_unpack;
}

}  // namespace tessera
