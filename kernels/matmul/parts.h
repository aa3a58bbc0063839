// Matrix products with sums in fixed parts: C = op(A) op(B), or C += op(A) op(B).
//
//   op(A) [M, K], op(B) [K, N], C [M, N]; dtypes as in kernels/matmul/op.h
//
// A part is a list of ranges of depths. The parts of a product are added in the balanced tree of
// kernels/tree_reduce/op.h. Four:
//
//        k:   |  part 0  |  part 1  |  part 2  |  part 3  |
//                  +----- + -----+       +----- + -----+
//                         +------------- + ------------+        C
//
// Tensor parallelism divides the depths of some products over ranks. A rank forms its parts and adds
// them. Then a reduction over ranks adds the sums in the upper levels of the same tree. So the bits
// depend on the parts alone, not on the number of ranks, where both numbers are powers of two.
//
// The bits of an element:
//   a part    its first range's product, as matmul of these depths gives it in f32 (f64 for f64). Each
//             further range is added as matmul does with Accumulate::yes.
//   C         the sum of the parts, rounded once; or C plus that sum, rounded once.
//
// On the CPU they do not depend on threads nor, but for bf16, on the instruction set. On a GPU they are
// those of cuBLASLt's algorithm for a range, which may depend on the strides of the factors and on how
// the range is aligned: ranges should begin at multiples of 16 bytes.
//
// The factors are read where they lie. Workspace on the CPU: that of a product, with some sums for each
// thread, and above kMostDepthOfParts depths matrices of sums [M, N]. On a GPU: a matrix of sums for
// each part, 8 at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/op.h"

namespace tessera {

/// Depths [first, first + count) of a product; count is at least 1.
struct DepthRange {
  std::int64_t first = 0, count = 0;
};
/// Ranges in the order in which they are added; at least one.
using DepthPart = std::vector<DepthRange>;

/// 2-D only. The number of parts is a power of two. Ranges do not overlap. Depths that belong to no
/// part are left out. On the CPU the products are our own, even if the rank has chosen OpenBLAS.
void matmul_in_parts(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a,
                     Transpose transpose_b, std::span<const DepthPart> parts,
                     Accumulate accumulate = Accumulate::no);

/// `count` equal parts of `depth`, one range each. `count` divides `depth`.
std::vector<DepthPart> equal_depth_parts(std::int64_t depth, std::int64_t count);

namespace cpu {
/// Parts of so many depths in all are multiplied at a time, with their sums in the cache. More parts
/// are halved: each half has its matrix of sums.
inline constexpr std::int64_t kMostDepthOfParts = 1536;

decltype(tessera::matmul_in_parts) matmul_in_parts;
}  // namespace cpu
namespace cuda {
decltype(tessera::matmul_in_parts) matmul_in_parts;
}

}  // namespace tessera
