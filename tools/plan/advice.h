// Advice: the largest micro-batch that fits a rank's memory, and the cheapest change that makes a run
// fit. Peaks are those of dry runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  /// Changes that fit, the cheapest first: with a machine by the predicted time of a step. Without, more
  /// and smaller micro-batches come first, then checkpointing, then strategies that shard more, then
  /// offload on GPUs. A strategy or an offload comes with the least of the earlier changes that fits.
  std::vector<Fit> fits;
};

/// The batch stays as it is. Raises Error as plan() does.
MemoryAdvice memory_advice(const Config& config, const PlanOptions& options, std::int64_t bytes);

/// The advice as lines of text.
std::string advice_text(const MemoryAdvice& advice, std::int64_t bytes);

/// The advice after a rank had no memory for more than `bytes` bytes of tensors, to be added to that
/// error's line: "; in 24.00 MiB these settings fit: data.accumulation_steps=2". The first of
/// MemoryAdvice::fits, by a plan for `ranks` ranks on GPUs or on CPUs. Empty if
/// there is no such plan.
std::string out_of_memory_advice(const Config& config, int ranks, bool on_gpus, std::int64_t bytes);

/// The bytes of a text such as "80GiB", "512MiB" or "16GB". Raises Error for another text.
std::int64_t parse_memory(const std::string& text);

}  // namespace tessera
