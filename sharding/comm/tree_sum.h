// Sums over ranks in a fixed balanced tree.
//
// Floating-point addition depends on its order, so the order is part of the contract: the sum of n
// values is that of the first p plus that of the rest, with p the largest power of two below n, and
// so on down. It depends on the number of ranks alone, never on who adds or on timing. Eight ranks:
//
//        +---------- + ----------+
//     +--- + ---+             +--- + ---+
//   r0 + r1  r2 + r3        r4 + r5  r6 + r7
//
// Halves of the tree are the trees of contiguous halves of the ranks. So reducing inside groups of
// contiguous ranks first and then across the groups (HSDP) adds in the same order as reducing over
// all ranks at once (DDP), when the numbers are powers of two.
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

enum class Reduction { sum, maximum };

/// result[i] = reduction over r of sources[r][i], for tensors of equal count and dtype. Sums of
/// f32, bf16 and f16 are formed in f32 and rounded once at the end; `result` has the sources'
/// dtype, or f32 beside 16-bit sources. Sums of i64 are exact. Maxima of f32 let NaN through.
/// `result` may be one of the sources. Raises Error on other dtypes.
void reduce_over_ranks(Out result, std::span<const Tensor> sources, Reduction reduction);

}  // namespace tessera
