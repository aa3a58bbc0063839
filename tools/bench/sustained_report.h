// Steps without a pause, as bench_step reports them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "tools/bench/sustained.h"

namespace tessera {

struct StepSizes {
  double flops, tokens;
  /// The FLOP/s of the GPU's data sheet, if they are known.
  std::optional<double> peak;
};

/// "steps", "step_ms", "tokens_per_second", "mfu" or null, and "samples". With samples: "sm_mhz", "watts",
/// "joules_per_token", and "clock_event_reasons" with the share of the time of each. Without: "reason".
nlohmann::ordered_json sustained_entries(const Sustained& sustained, const StepSizes& step);

void print_sustained(const nlohmann::ordered_json& entries);

}  // namespace tessera
