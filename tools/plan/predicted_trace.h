// A predicted step as a Chrome trace.
#pragma once

#include <string>

#include "tools/config/config.h"
#include "tools/plan/plan.h"

namespace tessera {

/// Writes the spans and marks of the fullest rank's step with their predicted times, in the form of a
/// traced step; in a pipeline those of a rank for each stage. A mesh with more axes than those of the batch also gives a
/// track for the transfers of each axis. Raises Error without PlanOptions::machine, or with offloading on a
/// machine without rates of its host.
void write_predicted_trace(const Config& config, const PlanOptions& options,
                           const std::string& path);

}  // namespace tessera
