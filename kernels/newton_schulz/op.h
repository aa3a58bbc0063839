// Orthogonalization of a matrix by Newton-Schulz iterations (Jordan et al. 2024, "Muon").
//
//   x = x / max(|x|, 1e-7)                     |x| is the root of the sum of squares
//   `steps` times, for x with at most as many rows as columns:
//     A = x x^T,  B = b A + c A A,  x = a x + B x      a = 3.4445, b = -4.7750, c = 2.0315
//   and for x with more rows:
//     A = x^T x,  B = b A + c A A,  x = a x + x B      the same for the transpose
//
//   x [M, N], f32 or bf16; overwritten
//
// If x = U S V^T, the result is near U V^T: each step maps a singular value s to a s + b s^3 + c s^5,
// which brings it to between 0.7 and 1.2 and does not converge to 1. Products come
// from kernels/matmul. A, B and x are rounded to x's dtype, sums are f32, as in torch.optim.Muon. There |x|
// is rounded to bf16, too; here it is not.
//
// On the CPU the bits depend neither on the number of threads nor, in f32, on the instruction set. On
// every device they are a function of x alone: one matrix is computed at a time, so neighbours do not
// matter. Workspace: 4 + size bytes for each element of A, and 4 for each of x.
#pragma once

#include "kernels/op.h"

namespace tessera {

inline constexpr int kNewtonSchulzSteps = 5;

void newton_schulz(Out x, int steps = kNewtonSchulzSteps);

/// Floating-point operations of the products. With k the smaller and n the larger extent a step has
/// 2 k^2 n (A) + 2 k^3 (A A) + 2 k^2 n (B x).
double newton_schulz_flops(std::int64_t rows, std::int64_t columns, int steps = kNewtonSchulzSteps);

}  // namespace tessera
