#include "kernels/linear_cross_entropy/options.h"

#include "runtime/context.h"

namespace tessera {

HeadOptions& head_options() {
  return context().state<HeadOptions>();
}

std::int64_t rows_of_chunk(std::int64_t chunk, const Device& device) {
  if (chunk == kAutomaticChunk) chunk = head_options().chunk;
  if (chunk != kAutomaticChunk) return chunk;
  return device.is_cpu() ? cpu::kCrossEntropyChunk : cuda::kCrossEntropyChunk;
}

}  // namespace tessera
