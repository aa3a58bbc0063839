// gelu on a part of a matrix, on the calling thread.
//
// A product that has the part in the cache calls these (matmul/cpu/steps.h).
#pragma once

#include "kernels/cpu/rectangle.h"
#include "kernels/gelu/op.h"
#include "kernels/matmul/cpu/isa.h"
#include "kernels/op.h"

namespace tessera::cpu {

// The matrices have one shape and one dtype. The bits are those of the operations in gelu/op.h.
void gelu_forward(Isa isa, const Rectangle& part, Out y, const Tensor& x, GeluForm form);
void gelu_backward(Isa isa, const Rectangle& part, Out dx, const Tensor& dy, const Tensor& x,
                   GeluForm form);

}  // namespace tessera::cpu
