// Grouped products (op.h) with factors that may be 8-bit numbers over a scale (kernels/linear/factor.h).
//
// Either both factors are 8-bit, or none. c and y are bf16 then. One scale is for the matrices of all experts.
// Hopper's kernel multiplies e4m3 numbers as they are in c = a b_e^T, if there are multiples of 16 depths and of 8
// columns. Else the factors are expanded to bf16 in workspace memory. Both ways have the same terms.
#pragma once

#include "kernels/grouped_matmul/op.h"
#include "kernels/linear/factor.h"

namespace tessera {

void grouped_matmul(Out c, const Factor& a, const Factor& b, const Tensor& offsets,
                    Transpose transpose_b);
void grouped_matmul_swiglu(Out y, Out c, const Factor& a, const Factor& b, const Tensor& offsets,
                           Transpose transpose_b);
void grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const Factor& a,
                                    const Factor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights, Transpose transpose_b);

namespace cuda {
/// grouped_matmul of 8-bit factors, or grouped_matmul_swiglu if y is defined. False, and nothing is done, if the GPU,
/// the formats, the shapes or the addresses do not suit.
bool fp8_grouped_matmul(Out y, Out c, const Factor& a, const Factor& b, const Tensor& offsets,
                        Transpose transpose_b);
}  // namespace cuda

}  // namespace tessera
