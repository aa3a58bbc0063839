// The rows of logits that a head and its loss have at a time.
//
// Each chunk reads and writes the gradient of the head's weight, and its logits take V numbers a row. So more
// rows cost memory and save traffic. The gradient is summed chunk by chunk: its bits depend on the rows.
#pragma once

#include "kernels/linear_cross_entropy/op.h"

namespace tessera {

struct HeadOptions {
  /// kAutomaticChunk: the device's default.
  std::int64_t chunk = kAutomaticChunk;
};

/// The options of the calling thread's rank.
HeadOptions& head_options();

/// `chunk`, or for kAutomaticChunk the rank's choice, or else the device's default.
std::int64_t rows_of_chunk(std::int64_t chunk, const Device& device);

}  // namespace tessera
