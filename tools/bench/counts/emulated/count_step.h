// A training step on the emulated GPU, counted.
#pragma once

#include "tools/bench/counts/emulated/step_work.h"
#include "tools/bench/host_calls.h"
#include "tools/train/resolve.h"

namespace tessera {

/// The work of the first step of a run on tokens that differ, with one rank on the run's first device.
/// The counters of memory are zero unless the program has counted kernels (docs/emulation.md).
StepWork count_step(const ResolvedConfig& run);

/// The host's calls in the third step, as in every one after it: the second captures its work
/// (runtime.graph).
HostCallCounts count_host_calls(const ResolvedConfig& run);

}  // namespace tessera
