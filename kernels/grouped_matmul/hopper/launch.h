// The host's function that launches grouped products with Hopper's instructions.
#pragma once

#include "kernels/grouped_matmul/groups.h"

namespace tessera::cuda::groups {

/// For 16-bit a and b, and rows of all operands and of c aligned to 16 bytes.
template <typename T, typename U>
bool suits_hopper(const Problem<T, U>& problem);

/// Queues the product. The problem suits Hopper.
template <typename T, typename U>
void multiply_on_hopper(const Problem<T, U>& problem);

}  // namespace tessera::cuda::groups
