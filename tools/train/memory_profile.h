// Memory of the profiled steps: for PyTorch's memory viewer, and as bytes over time.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/block_history.h"

namespace tessera {

/// The blocks of one rank in the profiled steps.
struct MemoryProfile {
  /// The live bytes when the recording began.
  MemoryAccount before;
  std::vector<BlockEvent> events;
};

/// The dict of torch.cuda.memory._snapshot, which https://docs.pytorch.org/memory_viz and
/// torch.cuda._memory_viz read. A block's frames are its category and its spans, the innermost first. Blocks
/// from before the recording are one block per category.
nlohmann::ordered_json memory_snapshot(const MemoryProfile& profile);

/// {"ms": [0, ...], "parameters": [bytes, ...], ...}: live bytes by category at up to `most` moments. Of
/// neighbouring moments the one with the largest total stays.
nlohmann::ordered_json memory_over_time(const MemoryProfile& profile, std::size_t most = 2000);

}  // namespace tessera
