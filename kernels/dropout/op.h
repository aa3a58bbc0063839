// Inverted dropout: y = x / (1 - p) where kept, 0 where dropped.
//
// (Srivastava et al. 2014.) Any shape; y may be x; 0 <= p < 1.
//
// Element i is dropped if random.uniform(first + i) < probability: x begins at element `first`, a
// multiple of 4, of the tensor that the mask is for. So the mask is a function of the stream,
// which names (seed, site, step, micro-batch), and of the element's index. No mask is stored:
// backward is the same function on dy with the same stream.
#pragma once

#include "kernels/op.h"
#include "runtime/random.h"

namespace tessera {

void dropout(Out y, const Tensor& x, float probability, const RandomStream& random,
             std::int64_t first = 0);

namespace cpu {
decltype(tessera::dropout) dropout;
}
namespace cuda {
decltype(tessera::dropout) dropout;
}

}  // namespace tessera
