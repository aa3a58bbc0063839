// Two neighbouring numbers of 8 bits (e4m3) as one element.
//
// Tensor cores read 8-bit numbers along the depth of a sum. So a matrix of 8-bit rows is, for copies and for places
// in shared memory, a matrix of pairs with half as many columns.
#pragma once

#include <cstdint>

namespace tessera {

struct E4m3Pair {
  std::uint16_t bits = 0;  // the first number in the lower byte
};

}  // namespace tessera
