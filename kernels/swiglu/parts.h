// swiglu on a part of a matrix, on the calling thread.
//
// A product that has the part in the cache calls these (matmul/cpu/steps.h). The bits are those of the
// operations in swiglu/op.h.
#pragma once

#include "kernels/cpu/rectangle.h"
#include "kernels/matmul/cpu/isa.h"
#include "kernels/swiglu/op.h"

namespace tessera::cpu {

// The part is of y, or dy, and of the columns of the others.
void swiglu_forward(Isa isa, const Rectangle& part, Out y, const Columns& gate, const Columns& up,
                    Gate activation = Gate::silu);
void swiglu_backward(Isa isa, const Rectangle& part, const Columns& dgate, const Columns& dup,
                     const Tensor& dy, const Columns& gate, const Columns& up,
                     Gate activation = Gate::silu);

}  // namespace tessera::cpu
