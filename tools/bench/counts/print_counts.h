// bench_counts' report as text.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// Prints a line for each kernel, the layer's launches and bytes, the step's times, and the check.
void print_counts(const nlohmann::ordered_json& report);

}  // namespace tessera
