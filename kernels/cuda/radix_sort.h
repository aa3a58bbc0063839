// A stable radix sort of 64-bit words on the device.
#pragma once

#include "runtime/tensor.h"

namespace tessera::gpu {

/// Sorts the words [N] in ascending order of their bits [first_bit, last_bit). Bits from last_bit
/// on must be 0 (or last_bit is 64). Words that are equal in these bits stay in order. Overwrites
/// `words`, and uses as much workspace again. N < 2^32.
Tensor radix_sorted(Tensor words, int first_bit, int last_bit);

}  // namespace tessera::gpu
