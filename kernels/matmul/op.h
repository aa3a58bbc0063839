// Matrix product C = op(A) op(B), or C += op(A) op(B).
//
//   2-D:  op(A) [M, K], op(B) [K, N], C [M, N];  op(X) is X or its transpose
//   3-D:  the same for every index of a leading batch dimension, equal in A, B and C
//
// A and B have one dtype (f32, bf16, f16, f64). C has the same dtype, or one of two others. An f32 C
// of 16-bit A and B lets weight gradients of 16-bit activations accumulate in full precision. A
// 16-bit C of f32 A and B rounds products of widened operands once. Sums are f32 (f64 for f64).
// K = 0 yields zeros (or leaves C when accumulating).
//
// On the CPU the products are our own (matmul/cpu/product.h). An element's sum is cut at depths that
// depend on K alone, so its bits depend neither on the number of threads nor on the rows computed
// with it nor, except for bf16, on the CPU's instruction set. Several ranks can multiply at the same
// time in one process. 16-bit factors are not widened in memory. On a GPU the product is cuBLASLt's
// (kernels/cuda/gemm.h says how its algorithm is chosen, and that it keeps 32 MiB of workspace per
// stream); f32 factors are not rounded to tf32 unless the context's options allow it.
#pragma once

#include "kernels/op.h"

namespace tessera {

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a = Transpose::no,
            Transpose transpose_b = Transpose::no, Accumulate accumulate = Accumulate::no);

namespace cpu {
decltype(tessera::matmul) matmul;
}
namespace cuda {
decltype(tessera::matmul) matmul;
}

}  // namespace tessera
