// The second step of a product whose f32 sums are stored in 16 bits.
#pragma once

#include "kernels/op.h"

namespace tessera {

namespace cpu {
/// c = sums, or c += sums, rounded once; c 16-bit, sums f32.
void narrow(Out c, const Tensor& sums, Accumulate accumulate);
}  // namespace cpu
namespace cuda {
decltype(cpu::narrow) narrow;
}

}  // namespace tessera
