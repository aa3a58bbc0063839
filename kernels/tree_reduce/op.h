// Reductions over tensors, such as one from each rank, in a fixed balanced tree.
//
// Floating-point addition depends on its order, so the order is part of the contract. The sum of n
// values is that of the first p plus that of the rest, with p the largest power of two below n, and
// so on down. It depends on the number of sources alone, never on timing. Eight:
//
//        +---------- + ----------+
//     +--- + ---+             +--- + ---+
//   x0 + x1  x2 + x3        x4 + x5  x6 + x7
//
// Halves of the tree are the trees of contiguous halves of the sources. So reducing inside groups
// of contiguous ranks first and then across the groups (HSDP) adds in the same order as reducing
// over all ranks at once (DDP), when the numbers are powers of two.
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

enum class Reduction { sum, maximum };

/// result[i] = reduction over r of sources[r][i], for tensors of equal count and dtype. Sums of
/// f32, bf16 and f16 are formed in f32 and rounded once at the end. `result` has the sources' dtype,
/// or f32 for 16-bit sources. Sums of i64 are exact. Maxima of f32 let NaN through. `result` may be
/// one of the sources, unless it is wider. The bits are the same on every device. On a GPU more than
/// 128 sources take workspace: one partial sum per 128 sources and element.
void tree_reduce(Out result, std::span<const Tensor> sources, Reduction reduction);

namespace cpu {
decltype(tessera::tree_reduce) tree_reduce;
}
namespace cuda {
decltype(tessera::tree_reduce) tree_reduce;
}

}  // namespace tessera
