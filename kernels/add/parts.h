// Sums on a part of a matrix, on the calling thread.
//
// A product that has the part in the cache calls this (matmul/cpu/steps.h). The bits are those of the
// operation in add/op.h.
#pragma once

#include "kernels/cpu/rectangle.h"
#include "kernels/matmul/cpu/isa.h"
#include "kernels/op.h"

namespace tessera::cpu {

/// y += x on a part of both.
void add_to(Isa isa, const Rectangle& part, Out y, const Tensor& x);

}  // namespace tessera::cpu
