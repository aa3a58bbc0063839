// Advice: the largest micro-batch that fits a rank's memory, and the cheapest change that makes a run
// fit. Peaks are those of dry runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sharding/comm/communicator.h"
#include "tools/config/config.h"
#include "tools/plan/plan.h"

namespace tessera {

/// A change of a configuration that fits.
struct Fit {
  /// The keys to set: "data.accumulation_steps=2". Empty: it fits as it is.
  std::vector<std::string> keys;
  std::int64_t peak = 0;
  /// Predicted with a machine; else 0.
  double step_seconds = 0.0;
};

struct MemoryAdvice {
  /// The peak of the configuration as it is.
  std::int64_t peak = 0;
  /// Rows of a micro-batch, and the peak with them; 0: not even one fits.
  std::int64_t most_rows = 0;
  std::int64_t peak_of_most_rows = 0;
  /// All tokens of a micro-batch, as kernels.head_chunk, and the peak with it; 0: their logits do not fit, or
  /// the head has one chunk as it is.
  std::int64_t head_chunk = 0;
  std::int64_t peak_of_head_chunk = 0;
  /// Changes that fit, the cheapest first: with a machine by the predicted time of a step. Without, more
  /// and smaller micro-batches come first, then checkpointing, then strategies that shard more, then
  /// offload on GPUs. A strategy or an offload comes with the least of the earlier changes that fits. If nothing
  /// of all this fits: the fewest tensor ranks, stages of a pipeline, or context ranks that do.
  std::vector<Fit> fits;
};

/// The batch stays as it is. Raises Error as plan() does.
MemoryAdvice memory_advice(const Config& config, const PlanOptions& options, std::int64_t bytes);

/// The advice as lines of text. `nccl`: bytes of the memory that are not among `bytes`, because NCCL's
/// buffers may take them.
std::string advice_text(const MemoryAdvice& advice, std::int64_t bytes, std::int64_t nccl = 0);

/// Bytes of `memory` that NCCL's buffers may take: PlannedStrategy::nccl_at_most of the configured mesh.
/// Raises Error if they may take all.
std::int64_t nccl_part_of(std::int64_t memory, const Config& config, const PlanOptions& options);

/// Calls `body`, in which a rank of `world` trains by `config`. If the rank has too little memory,
/// the Error's line ends with the first of MemoryAdvice::fits for the bytes that its tensors had:
/// "; in 24.00 MiB these settings fit: data.accumulation_steps=2".
void with_training_advice(const Config& config, const Communicator& world,
                          const std::function<void()>& body);

/// The bytes of a text such as "80GiB", "512MiB" or "16GB". Raises Error for another text.
std::int64_t parse_memory(const std::string& text);

}  // namespace tessera
