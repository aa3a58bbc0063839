// A stable sort on the device.
#pragma once

#include "runtime/tensor.h"

namespace tessera::gpu {

/// The 64-bit words [N] in ascending order of their bits [first_bit, last_bit) (last_bit = 64, or
/// all bits from there on 0); words that are equal in these stay in order. Uses `words` and as much
/// workspace again. N < 2^32.
Tensor radix_sorted(Tensor words, int first_bit, int last_bit);

}  // namespace tessera::gpu
