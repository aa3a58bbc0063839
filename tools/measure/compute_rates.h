// The rates at which ranks compute a training step, measured on this machine.
#pragma once

#include <vector>

#include "runtime/device.h"
#include "sharding/plan/machine_rates.h"
#include "tools/train/resolve.h"

namespace tessera {

struct ComputeMeasurement {
  /// Ranks that compute at the same time, each alone with the whole model.
  int ranks = 1;
  int threads = 1;
  int steps = 5;
  Device device = {};
};

/// Trains `run` with strategy single. The rates are the operations and bytes of a dry run over the
/// medians of the times of forward, backward and optimizer. Every rank computes the batch of `run`.
/// In fp8 a run in bf16 comes first: the rates of 8-bit products (e4m3) follow from the difference. Raises Error if
/// the products take no time next to the others.
std::vector<ComputeRates> measure_compute(const ResolvedConfig& run, const ComputeMeasurement& how);

}  // namespace tessera
