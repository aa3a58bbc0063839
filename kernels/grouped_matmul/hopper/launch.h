// The host's function that launches grouped products with Hopper's instructions.
#pragma once

#include "kernels/grouped_matmul/groups.h"
#include "runtime/e4m3_pair.h"

namespace tessera::cuda::groups {

/// For elements of 16 bits in a and b, and rows of all operands and of c aligned to 16 bytes. Pairs of 8-bit numbers
/// are elements where their matrices are read along the depth: in c = a b_e^T.
template <typename T, typename U>
bool suits_hopper(const Problem<T, U>& problem);

/// Columns of a tile of rows with N columns. (Those of gate and up are half as wide, and there are two.)
inline int columns_of_tile(std::int64_t N) {
  return N <= 128 ? 128 : 256;
}

/// Queues the product. The problem suits Hopper.
template <typename T, typename U>
void multiply_on_hopper(const Problem<T, U>& problem);
template <>
void multiply_on_hopper(const Problem<E4m3Pair, bfloat16>& problem);

/// Its part for an operand that is gathered.
template <typename T, typename U>
void multiply_gathered(const Problem<T, U>& problem);
/// Its part with GELU, or with the gradient of an activation, of rows by expert.
template <typename T>
void multiply_with_activation(const Problem<T, T>& problem);

}  // namespace tessera::cuda::groups
