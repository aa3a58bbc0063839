// Elementwise sum: y = a + b.
//
//   y, a and b of one floating dtype and shape; y may be a or b
//
// The sum is rounded once. Backward is the identity on both sides.
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

void add(Out y, const Tensor& a, const Tensor& b);

/// sums[i] += addends[i] for every i: on a GPU in one launch, on the CPU in one parallel loop. The
/// element counts of a pair are equal; shapes may differ. All sums have one dtype, and all addends:
/// the same one, or 16 bits for sums in f32.
void add_all(std::span<const Tensor> sums, std::span<const Tensor> addends);

namespace cpu {
decltype(tessera::add) add;
decltype(tessera::add_all) add_all;
}  // namespace cpu
namespace cuda {
decltype(tessera::add) add;
decltype(tessera::add_all) add_all;
}  // namespace cuda

}  // namespace tessera
